"""Fourier transforms against PyTorch: values, gradients, element types and errors."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.autograd import gradcheck, gradgradcheck
from evergrad.func import vmap
from twins import agree, derivatives, refuse

Array = np.ndarray[Any, Any]

FROM_REAL = ("rfft", "ihfft")
ONE_DIMENSION = ("fft", "ifft", "irfft", "hfft", *FROM_REAL)
SEVERAL_DIMENSIONS = tuple(name + "n" for name in ("fft", "ifft", "irfft", "hfft", *FROM_REAL))
NORMS = (None, "backward", "ortho", "forward")


def numbers(*shape: int, complex: bool = False) -> Array:
    generator = np.random.default_rng(shape)
    found: Any = generator.standard_normal(shape)
    return np.asarray(found + 1j * generator.standard_normal(shape) if complex else found)


def inputs_of(name: str, *shape: int) -> list[Array]:
    """Real numbers, and complex ones for the transforms that take them."""
    kinds = (False,) if name.startswith(FROM_REAL) else (False, True)
    return [numbers(*shape, complex=c) for c in kinds]


def compare(torch: ModuleType, call: Callable[..., Any], x: Array) -> None:
    agree(lambda ns: derivatives(ns, call, x), torch, 1e-10)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE_DIMENSION)
def test_one_dimension(torch: ModuleType, name: str, norm: str | None) -> None:
    for x in inputs_of(name, 3, 4, 5):
        for n in (None, 1, 2, 4, 5, 7):
            for dim in (-1, 1):
                compare(torch, lambda ns, x, a=(n, dim): getattr(ns.fft, name)(x, *a, norm), x)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", SEVERAL_DIMENSIONS)
def test_several_dimensions(torch: ModuleType, name: str, norm: str | None) -> None:
    for x in inputs_of(name, 3, 2, 5):
        for s, dim in (
            (None, None),
            ((2, 7), None),
            ((3, 3, 6), None),
            (None, (0, 2)),
            (None, (2, 1, 0)),
            ((4, -1), (2, 0)),
            ((5,), -2),
        ):
            compare(torch, lambda ns, x, a=(s, dim): getattr(ns.fft, name)(x, *a, norm), x)


@pytest.mark.parametrize("name", [name[:-1] + "2" for name in SEVERAL_DIMENSIONS])
def test_two_dimensions(torch: ModuleType, name: str) -> None:
    for x in inputs_of(name, 3, 2, 5):
        compare(torch, lambda ns, x: getattr(ns.fft, name)(x), x)
        compare(torch, lambda ns, x: getattr(ns.fft, name)(x, (3, 4), (1, 0), "ortho"), x)


@pytest.mark.parametrize("name", [*ONE_DIMENSION, *SEVERAL_DIMENSIONS])
def test_derivatives_in_both_modes(name: str) -> None:
    transform = getattr(evergrad.fft, name)
    for x in inputs_of(name, 2, 3):
        point = evergrad.tensor(x).requires_grad_()
        assert gradcheck(transform, (point,), check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(transform, (point,))


def test_inverses() -> None:
    x = evergrad.tensor(numbers(3, 5))
    fft = evergrad.fft
    for back in (
        fft.ifft(fft.fft(x)).real,
        fft.irfft(fft.rfft(x), 5),
        fft.hfft(fft.ihfft(x), 5),
        fft.ifftn(fft.fftn(x, norm="forward"), norm="forward").real,
        fft.irfftn(fft.rfftn(x, norm="ortho"), x.shape, norm="ortho"),
        fft.hfftn(fft.ihfftn(x), x.shape),
        fft.ifftshift(fft.fftshift(x)),
    ):
        np.testing.assert_allclose(back.numpy(), x.numpy(), atol=1e-14)


@pytest.mark.parametrize("name", ONE_DIMENSION)
@pytest.mark.parametrize("kind", ["float32", "complex64", "int64", "bool"])
def test_element_types(torch: ModuleType, name: str, kind: str) -> None:
    if kind == "complex64" and name in FROM_REAL:
        refuse(lambda ns: getattr(ns.fft, name)(ns.ones(3, dtype=ns.complex64)), torch)
        return
    x = np.arange(12).reshape(3, 4).astype(kind)

    def program(ns: Any) -> Any:
        found = getattr(ns.fft, name)(ns.tensor(x))
        return found, str(found.dtype).partition(".")[2]

    agree(program, torch, tolerance=1e-4)


@pytest.mark.parametrize("d", [1.0, 0.3])
@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_frequencies(torch: ModuleType, n: int, d: float) -> None:
    for name in ("fftfreq", "rfftfreq"):
        agree(lambda ns, f=name: getattr(ns.fft, f)(n, d), torch, tolerance=1e-7)
        agree(lambda ns, f=name: getattr(ns.fft, f)(n, d, dtype=ns.float64), torch)
    out = evergrad.zeros(n)
    assert evergrad.fft.fftfreq(n, d, out=out) is out
    assert evergrad.fft.fftfreq(n, d, requires_grad=True).requires_grad


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 1)])
def test_shifts(torch: ModuleType, dim: Any) -> None:
    for name in ("fftshift", "ifftshift"):
        compare(torch, lambda ns, x, f=name: getattr(ns.fft, f)(x, dim), numbers(3, 4))


def test_stacks_without_elements() -> None:
    x = evergrad.zeros(0, 3, requires_grad=True)
    found = evergrad.fft.rfft(x)
    assert found.shape == (0, 2) and found.dtype is evergrad.complex64
    found.real.sum().backward()
    assert x.grad is not None and x.grad.shape == (0, 3)


def test_many_at_once() -> None:
    x = numbers(2, 3, 4)
    found = vmap(lambda x: evergrad.fft.rfft(x, dim=0), in_dims=1)(evergrad.tensor(x))
    np.testing.assert_allclose(found.numpy(), np.fft.rfft(x.transpose(1, 0, 2), axis=1))


@pytest.mark.parametrize(
    "program",
    [
        lambda ns: ns.fft.fft(ns.ones(3, dtype=ns.float16)),
        lambda ns: ns.fft.fft(ns.ones(0)),
        lambda ns: ns.fft.fft(ns.ones(3), n=0),
        lambda ns: ns.fft.fft(ns.ones(3), norm="orthogonal"),
        lambda ns: ns.fft.fft(ns.ones(3), dim=1),
        lambda ns: ns.fft.fft(ns.tensor(1.0)),
        lambda ns: ns.fft.irfft(ns.ones(1)),
        lambda ns: ns.fft.irfft(ns.ones(3), n=-1),
        lambda ns: ns.fft.fft2(ns.ones(3)),
        lambda ns: ns.fft.fft2(ns.ones(3, 3), s=(2,)),
        lambda ns: ns.fft.fftn(ns.ones(3, 3), dim=(0, 0)),
        lambda ns: ns.fft.fftn(ns.ones(3, 3), s=(1, 2, 3)),
        lambda ns: ns.fft.rfftn(ns.tensor(2.0)),
        lambda ns: ns.fft.hfftn(ns.ones(3, 4), dim=()),
        lambda ns: ns.fft.irfftn(ns.ones(3, 1)),
        lambda ns: ns.fft.fftfreq(5, dtype=ns.int64),
        lambda ns: ns.fft.fftfreq(5, step=2),
        lambda ns: ns.fft.fftshift(ns.tensor(3.0)),
    ],
)
def test_refusals(torch: ModuleType, program: Callable[[Any], Any]) -> None:
    refuse(program, torch)
