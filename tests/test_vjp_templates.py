"""Vjp programs for further shapes come from a template, and give what a trace gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.autograd import gradcheck
from evergrad.core import vjp_template
from evergrad.core.dtypes import float64
from evergrad.core.op import TABLE, clear_specializations
from evergrad.core.shapes import tensor_type
from evergrad.core.vjp_program import VjpProgram
from evergrad.errors import GradientError
from evergrad.nn import functional as F

SIZES = (10, 14, 23, 31, 11, 40, 12)

Make = Callable[[int], list[Any]]


def rows(*columns: int) -> Make:
    """Matrices of so many columns each."""
    return lambda n: [eg.randn(n, c) for c in columns]


CASES: dict[str, tuple[Callable[..., Any], Make]] = {
    "product": (lambda a, b: a * b, rows(6, 6)),
    "row": (lambda a, b: a * b[0], rows(6, 6)),
    "column": (lambda a, b: a / (b + 9), rows(6, 1)),
    "number": (lambda a: 3 * a - 1.5, rows(6)),
    "power": (lambda a: a.square() ** 1.5, rows(20)),
    "relu": (eg.relu, rows(20)),
    "tanh": (eg.tanh, rows(20)),
    "gelu": (F.gelu, rows(5)),
    "where": (lambda a, b: eg.where(a > b, a, b * 2), rows(20, 20)),
    "nan-safe": (lambda a: eg.where(a > 0, a.abs().sqrt(), 0.0), rows(20)),
    "clamp": (lambda a: a.clamp(-0.5, 0.5), rows(20)),
    "sum all": (lambda a: a.sum(), rows(20)),
    "sum of rows": (lambda a: a.sum(1), rows(20)),
    "sum of columns": (lambda a: a.sum(0, keepdim=True), rows(20)),
    "mean all": (lambda a: a.mean(), rows(20)),
    "mean of columns": (lambda a: a.mean(0), rows(20)),
    "largest": (lambda a: a.amax(1), rows(20)),
    "softmax": (lambda a: a.softmax(1), rows(20)),
    "log_softmax": (lambda a: a.log_softmax(0), rows(20)),
    "logsumexp": (lambda a: a.logsumexp(1), rows(20)),
    "linear": (F.linear, lambda n: [eg.randn(n, 6), eg.randn(4, 6)]),
    "linear of 3": (F.linear, lambda n: [eg.randn(3, n, 6), eg.randn(4, 6)]),
    "matmul": (lambda a, b: a @ b.t(), rows(6, 6)),
    "stack of matrices": (lambda a: a @ a.transpose(-2, -1), lambda n: [eg.randn(2, n, 6)]),
    "reshape": (lambda a: a.reshape(-1, 3).exp(), rows(6)),
    "permute": (lambda a: a.reshape(2, -1, 3).permute(2, 0, 1) * 2, rows(6)),
    "expand": (lambda a: a[:, :1].expand(-1, 7).sin(), rows(6)),
    "slice": (lambda a: a[1:-1, ::2], rows(34)),
    "split": (lambda a: a.split(2, 1)[1] * a[:, 3:5], rows(20)),
    "gather": (lambda a: a.gather(1, eg.arange(a.shape[0]).reshape(-1, 1) % 6), rows(6)),
    "index": (lambda a: a[eg.arange(a.shape[0]) // 2], rows(6)),
    "cross entropy": (lambda a: F.cross_entropy(a, eg.arange(a.shape[0]) % 6), rows(6)),
    "batch size is a width": (lambda a, b: a * b, lambda n: [eg.randn(n, n), eg.randn(n)]),
}


@pytest.fixture(autouse=True)
def _no_templates() -> Iterator[None]:
    clear_specializations()
    yield
    clear_specializations()


def gradients(function: Callable[..., Any], given: list[Any]) -> list[Any]:
    leaves = [g.detach().requires_grad_() for g in given]
    out = function(*leaves)
    weights = eg.arange(out.numel(), dtype=eg.float32).reshape(out.shape).cos()
    return list(eg.autograd.grad((out * weights).sum(), leaves))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that were traced, from now on."""
    traced: list[Any] = []
    init = VjpProgram.__init__

    def noting(self: VjpProgram, *args: Any) -> None:
        traced.append(args[0])
        init(self, *args)

    monkeypatch.setattr(VjpProgram, "__init__", noting)
    return traced


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_traced_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, make = CASES[name]
    given = [make(n) for n in SIZES]
    found = [gradients(function, g) for g in given]
    monkeypatch.setattr(vjp_template, "vjp_program", VjpProgram)
    monkeypatch.setattr("evergrad.core.op.vjp_program", VjpProgram)
    clear_specializations()
    for mine, g in zip(found, given, strict=True):
        for a, b in zip(mine, gradients(function, g), strict=True):
            assert np.array_equal(a.numpy(), b.numpy(), equal_nan=True)


@pytest.mark.parametrize("name", [name for name in CASES if name != "split"])
def test_nothing_is_traced_from_the_fourth_shape_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, make = CASES[name]
    for n in SIZES[:3]:
        gradients(function, make(n))
    traced = counted(monkeypatch)
    for n in SIZES[3:]:
        gradients(function, make(n))
    assert [s.op.name for s in traced] == []


def test_an_extent_that_was_always_the_same_is_no_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in SIZES[:3]:
        gradients(F.linear, [eg.randn(n, 6), eg.randn(4, 6)])
    traced = counted(monkeypatch)
    gradients(F.linear, [eg.randn(10, 7), eg.randn(4, 7)])
    assert "linear" in [s.op.name for s in traced]


def test_large_arrays_have_kernels_of_their_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    function = CASES["row"][0]
    for n in SIZES:
        gradients(function, rows(6, 6)(n))
    traced = counted(monkeypatch)
    a, b = rows(6, 6)(9_000)
    grads = gradients(function, [a, b])
    assert traced == []
    weights = eg.arange(a.numel(), dtype=eg.float32).reshape(a.shape).cos()
    assert np.allclose(grads[1][0].numpy(), (a * weights).double().sum(0).numpy(), atol=1e-2)
    assert np.array_equal(grads[0].numpy(), (b[0] * weights).numpy())


def test_second_derivatives_and_hooks_of_a_template() -> None:
    for n in SIZES:
        x = eg.randn(n, 3, dtype=eg.float64).requires_grad_()
        seen: list[Any] = []
        y = x * x.sin()
        y.register_hook(seen.append)
        (first,) = eg.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = eg.autograd.grad(first.sum(), x)
        expected = 2 * x.cos() - x * x.sin()
        assert np.allclose(second.numpy(), expected.detach().numpy())
        assert len(seen) == 1 and seen[0].shape == x.shape
    assert gradcheck(lambda x: (x * x.sin()).sum(), (x,))


def test_second_derivatives_behind_a_selection() -> None:
    """Rows that save nothing have one formula, whether zero cotangents must stay zero or not."""
    for n in SIZES:
        x = eg.randn(n, 3, dtype=eg.float64).requires_grad_()
        y = eg.where(eg.arange(n) % 2 == 0, (x * x).sum(1).reshape(n), 0.0)
        (first,) = eg.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = eg.autograd.grad((first * x).sum(), x)
        expected = 4 * x * (eg.arange(n).reshape(n, 1) % 2 == 0)
        assert np.allclose(second.numpy(), expected.detach().numpy())


def test_residuals_that_were_overwritten_are_still_found() -> None:
    for n in SIZES:
        x = eg.randn(n, 3).requires_grad_()
        y = x.exp()
        out = y * 2
        y.mul_(0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_memory_does_not_grow_with_shapes() -> None:
    weight = eg.randn(4, 3).requires_grad_()
    for n in range(2, 40):
        F.linear(eg.ones(n, 3), weight).sum().backward()
    before = eg.memory.stats()["live"], len(vjp_template._structures)
    for n in range(40, 400):
        F.linear(eg.ones(n, 3), weight).sum().backward()
    assert (eg.memory.stats()["live"], len(vjp_template._structures)) == before


def test_structures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vjp_template, "_STRUCTURE_LIMIT", 8)
    x = eg.randn(2, 3).requires_grad_()
    for power in range(2, 40):
        for rank in range(4):
            (x.reshape((1,) * rank + (2, 3)) * float(power)).sum().backward()
    assert len(vjp_template._structures) <= 8


# Rows whose derivative is by other arguments than the first.
OTHERS = ("polygamma", "zeta", "standard_gamma_grad", "dirichlet_grad")
ELEMENTWISE = [
    name for name, op in TABLE.items()
    if op.shape_generic and op.differentiable and op.family == "elementwise" and name not in OTHERS
]  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_elementwise_row_has_a_template(name: str) -> None:
    op = TABLE[name]
    structure = vjp_template._Structure()
    for n in (9, 14, 23, 32, 64):  # odd and even, and a power of two
        types = tensor_type((n, 1, 5), float64), tensor_type((7, 1), float64)
        program = traced_for(op, types)
        specialization = program.specialization
        extents = vjp_template._structure(specialization, program.needs, False)[1]
        if structure.template is None:
            structure.learn(program, extents)
        else:
            structure.template.confirm(vjp_template._describe(program), extents)
    assert structure.template is not None


def traced_for(op: Any, types: tuple[Any, ...]) -> VjpProgram:
    """The program of a row by its tensors; other arguments are numbers."""
    x, y = types
    numbers = (float, float, float)
    for given in (
        (x,),
        (x, y),
        (x, y, x),
        (x, y, x, float),
        *[(x, *numbers[i:]) for i in range(3)],
    ):
        needs = sum(1 << i for i, type in enumerate(given) if type is not float)
        try:
            return VjpProgram(op._specialize(given, {}), needs)
        except (TypeError, ValueError, AssertionError, GradientError):
            continue
    raise AssertionError(f"{op.name} takes other arguments")


def test_rows_that_state_it() -> None:
    """Rows whose vjp depends on extents by more than equality (halves of spectra, windows) do not
    state ``shape_generic``."""
    for name in ("fft_to_half", "fft_from_half", "max_pool", "conv", "window_sum", "unfold_dim"):
        assert not TABLE[name].shape_generic
