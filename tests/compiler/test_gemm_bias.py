"""Products that start from a bias instead of zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import programs_of

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.kernels.gemm import tiling
from evergrad.compiler.native import jit

pytestmark = [
    pytest.mark.usefixtures("made_anew"),
    pytest.mark.skipif(not jit.has_fma(), reason="no fused multiply-add on this processor"),
]


@pytest.fixture(autouse=True)
def any_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are cut into rows also where that takes longer: most are small here."""
    monkeypatch.setattr(tiling, "_AS_GOOD", 9.0)


def normal(*shape: int, seed: int, dtype: Any = eg.float32) -> Any:
    numbers = np.random.default_rng([9, seed]).standard_normal(shape)
    return eg.tensor(numbers.astype(np.float32), dtype=dtype)


def starting(compiled: Any) -> int:
    """How many products start from a bias."""
    instructions = [i for program in programs_of(compiled) for i in program.instructions]
    return sum(i.kernel is not None and i.kernel.name.startswith("gemm_bias") for i in instructions)


Form = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]

FORMS: dict[str, Form] = {
    "a layer": (lambda x, w, b: F.linear(x, w, b), ((1000, 70), (130, 70), (130,))),
    "in several dimensions": (lambda x, w, b: F.linear(x, w, b), ((20, 50, 40), (96, 40), (96,))),
    "the bias first": (lambda x, w, b: b + x @ w, ((700, 70), (70, 130), (130,))),
    "a row of a matrix": (lambda x, w, b: x @ w + b, ((700, 70), (70, 130), (1, 130))),
    "several blocks of the depth": (
        lambda x, w, b: x @ w + b, ((700, 1300), (1300, 144), (144,)),
    ),
    "transposed factors": (lambda a, w, b: a.T @ w.T + b, ((300, 700), (110, 300), (110,))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [eg.float32, eg.float64])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, dtype: Any) -> None:
    function, shapes = FORMS[form]
    given = [normal(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes)]
    compiled = eg.compile(function)
    found = compiled(*given)
    assert starting(compiled) == 1
    tolerance = 1e-11 if dtype is eg.float64 else 2e-4
    expected = function(*given).numpy()
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


OTHERS: dict[str, Form] = {
    "a column": (lambda x, w, b: x @ w + b, ((700, 70), (70, 130), (700, 1))),
    "a matrix": (lambda x, w, b: x @ w + b, ((700, 70), (70, 130), (700, 130))),
    "a row that does not lie in order": (
        lambda x, w, b: x @ w + b[::2], ((700, 70), (70, 130), (260,)),
    ),
    "a number": (lambda x, w, b: x @ w + b, ((700, 70), (70, 130), ())),
    "a difference": (lambda x, w, b: x @ w - b, ((700, 70), (70, 130), (130,))),
    "something after it": (lambda x, w, b: (x @ w + b).exp(), ((700, 7), (7, 130), (130,))),
}  # fmt: skip


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_no_bias(form: str) -> None:
    function, shapes = OTHERS[form]
    given = [normal(*shape, seed=n) / 4 for n, shape in enumerate(shapes)]
    compiled = eg.compile(function)
    found = compiled(*given)
    assert starting(compiled) == 0
    np.testing.assert_allclose(found.numpy(), function(*given).numpy(), rtol=2e-4, atol=2e-4)


def test_other_numbers_of_another_type_are_added_by_a_loop() -> None:
    x, w, b = normal(700, 70, seed=0), normal(70, 130, seed=1), normal(130, seed=2)
    compiled = eg.compile(lambda x, w, b: x @ w + b)
    found = compiled(x, w, b.double())
    assert starting(compiled) == 0
    np.testing.assert_allclose(found.numpy(), (x @ w + b.double()).numpy(), rtol=2e-4, atol=2e-4)


def test_the_same_bits_for_any_number_of_threads() -> None:
    function, shapes = FORMS["several blocks of the depth"]
    given = [normal(*shape, seed=n) for n, shape in enumerate(shapes)]
    found = []
    for threads in (1, 2, 3):
        eg.set_num_threads(threads)
        compiled = eg.compile(function)
        compiled(*given)
        for program in programs_of(compiled):
            program.threads = threads
        found.append(compiled(*given).numpy().tobytes())
    assert found[0] == found[1] == found[2]
