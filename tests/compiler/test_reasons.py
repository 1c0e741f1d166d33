"""What plan(), explain() and ``fullgraph=True`` say of functions that are no single program: the
reason, and a fix that suits it."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.frontend.reasons import fix_for

array = np.zeros(3, np.float32)
shared = eg.from_numpy(array)
table = eg.nn.Embedding(4, 2, sparse=True)
padded = eg.nn.Embedding(4, 2, padding_idx=0, sparse=True)
kept = SimpleNamespace(source=iter([1.0, 2.0]))


def writes_shared_memory(x: Any) -> Any:
    eg.from_numpy(array).add_(x)
    return x


def reads_distinct_elements(x: Any) -> Any:
    return x.unique().sum() * 2


def reads_an_array(x: Any) -> Any:
    return x * float((x * 2).numpy().max())


def prints_a_tensor(x: Any) -> Any:
    return str(x * 2)


def leaves_a_sparse_gradient(x: Any) -> Any:
    padded(x.long().abs()).sum().backward()


def registers_a_hook(x: Any) -> Any:
    table.weight.register_hook(lambda g: g * 2)
    return x


def sets_a_variable(x: Any) -> Any:
    os.environ["A_TEST_OF_REASONS"] = "1"
    return x * 2


def shuffles(x: Any) -> Any:
    order = [0, 1, 2]
    random.shuffle(order)
    return x[order]


def replaces_data(x: Any) -> Any:
    shared.data = x
    return x * 2


def formats_a_number(x: Any) -> Any:
    return f"{x.sum().item():.3f}"


def makes_a_layer(x: Any) -> Any:
    return eg.nn.Linear(3, 3)


def returns_a_generator(x: Any) -> Any:
    return (x * k for k in range(2))


FIXES = (
    (writes_shared_memory, "clone"), (reads_distinct_elements, "where"), (reads_an_array, "where"),
    (prints_a_tensor, "print it outside"), (leaves_a_sparse_gradient, "sparse=False"),
    (registers_a_hook, "hooks outside"), (sets_a_variable, "change it outside"),
    (shuffles, "call it outside"), (replaces_data, r"copy_\(\)"),
    (formats_a_number, "(texts|where)"), (makes_a_layer, "make the object outside"),
    (returns_a_generator, r"next\(\)"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    environ = dict(os.environ)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    os.environ.clear()
    os.environ.update(environ)


@pytest.mark.parametrize(("function", "fix"), FIXES)
def test_plan_and_explain_name_a_fix(function: Callable[..., Any], fix: str) -> None:
    step = eg.compile(function)
    for report in (step.plan, step.explain):
        with pytest.raises((RuntimeError, eg.errors.TraceError), match=f"fix: .*{fix}") as found:
            report(eg.arange(3).float())
        assert "where" in fix or "evergrad.where" not in str(found.value)


@pytest.mark.parametrize(("function", "fix"), FIXES)
def test_fullgraph_names_a_fix(function: Callable[..., Any], fix: str) -> None:
    step = eg.compile(function, fullgraph=True)
    with pytest.raises(eg.errors.TraceError, match=f"fix: .*{fix}") as found:
        for _ in range(3):
            step(eg.arange(3).float())
    assert "where" in fix or "evergrad.where" not in str(found.value)


def test_the_line_of_code_is_no_part_of_the_reason() -> None:
    reason = "the value of a traced tensor was read, at a.py:3, in f: x.register_hook(printed)"
    assert "where" in str(fix_for(reason))


def test_a_reason_without_a_fix() -> None:
    assert fix_for("its programs were not valid any more 3 times") is None
