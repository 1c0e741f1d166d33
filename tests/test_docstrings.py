"""Docstrings of public names: each teaches, and every example in them runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn, optim, ragged
from evergrad.core.tensor import Tensor
from evergrad.ops.reference import DOCS
from evergrad.ops.surface.public import FUNCTIONS
from evergrad.utils import data

NAMESPACES = [
    "nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrizations",
    "nn.utils.parametrize", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data",
    "func", "autograd", "linalg", "fft", "special", "random", "distributions", "amp", "sparse",
    "nested", "ragged", "memory", "compiler", "distributed", "models", "tokenizers", "datasets",
    "transforms", "train", "io", "profiler", "masked", "signal.windows", "quasirandom",
]  # fmt: skip
# A program of two processes in place of an example.
OF_SEVERAL_PROCESSES = {
    "GradBucket", "P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "recv_object_list",
    "send", "send_object_list",
}  # fmt: skip
GLOBALS = {
    **{name: getattr(data, name) for name in data.__all__},
    "eg": eg,
    "nn": nn,
    "F": F,
    "optim": optim,
    "np": np,
    "ragged": ragged,
}


def public() -> Iterator[tuple[str, Any]]:
    """Every public name with a docstring, methods of classes included."""
    for name, function in FUNCTIONS.items():
        yield name, function
    for name, value in vars(Tensor).items():
        if not name.startswith("_") and value.__doc__ != getattr(FUNCTIONS.get(name), "__doc__", 0):
            yield f"Tensor.{name}", value
    for path in NAMESPACES:
        module = importlib.import_module(f"evergrad.{path}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            yield f"{path}.{name}", value
            if inspect.isclass(value):
                for member, method in vars(value).items():
                    if not member.startswith("_") and callable(method):
                        yield f"{path}.{name}.{member}", method


def test_every_example_runs() -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=flags)
    seen: set[str] = set()
    said: list[str] = []
    for name, value in public():
        doc = inspect.getdoc(value)
        if doc and ">>>" in doc and doc not in seen:
            seen.add(doc)
            runner.run(parser.get_doctest(doc, dict(GLOBALS), name, None, 0), out=said.append)
    assert not runner.failures, "".join(said)
    assert runner.tries > 500


def test_every_entry_of_the_reference_is_shown_somewhere() -> None:
    shown = {inspect.cleandoc(value.__doc__) for _, value in public() if value.__doc__}
    missing = [name for name, doc in DOCS.items() if inspect.cleandoc(doc) not in shown]
    assert not missing


@pytest.mark.parametrize(
    "name", ["softmax", "matmul", "cat", "where", "tensor", "sum", "max", "einsum", "gather"]
)
def test_help_teaches(name: str) -> None:
    doc = inspect.getdoc(getattr(eg, name)) or ""
    assert "Args:" in doc and ">>>" in doc
    for parameter in inspect.signature(getattr(eg, name)).parameters:
        assert parameter in ("out", "args") or f"    {parameter}:" in doc, parameter


def test_every_public_name_has_an_example() -> None:
    missing = [name for name, value in FUNCTIONS.items() if ">>>" not in (value.__doc__ or "")]
    for path in NAMESPACES:
        module = importlib.import_module(f"evergrad.{path}")
        for name in module.__all__:
            value = getattr(module, name)
            doc = (inspect.getdoc(value) or "") if callable(value) else ">>>"
            of_several = path == "distributed" and name in OF_SEVERAL_PROCESSES
            if ("::\n" if of_several else ">>>") not in doc:
                missing.append(f"{path}.{name}")
    assert missing == []
