"""``gradcheck`` finds wrong derivatives, and only those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.autograd import GradcheckError, gradcheck, gradgradcheck
from twins import fixed, leaf

X = [0.3, -0.8, 1.4]


def wrong(factor: float = 2.0, *, jvp_factor: float = 1.0, second: bool = False) -> Any:
    """x² with a derivative that is wrong by a factor, in one mode or at second order only."""

    class Wrong(eg.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2 * (x.detach() if second else x * factor / 2)

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            (x,) = ctx.saved_tensors
            return t * 2 * x * jvp_factor

    return Wrong.apply


RIGHT = {
    "smooth": (lambda x: x.sin() * x, X),
    "several results": (lambda x: (x.exp(), x.sum(), x > 0), X),
    "a number": (lambda x: (x**3).sum(), X),
    "non-contiguous": (lambda x: x.t() @ x, [[1.0, 2.0], [3.0, 4.0]]),
    "empty": (lambda x: x * 2, []),
    "zero-dimensional": (lambda x: x * x, 3.0),
    "unused": (lambda x: eg.ones(2, dtype=eg.float64), X),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_derivatives_pass_in_every_mode(name: str) -> None:
    function, values = RIGHT[name]
    x = leaf(eg, values)
    assert gradcheck(
        function, (x,), check_forward_ad=True, check_batched_grad=True,
        check_batched_forward_grad=True,
    )  # fmt: skip
    assert gradgradcheck(function, (x,), check_fwd_over_rev=True, check_batched_grad=True)


def test_several_inputs_and_other_arguments() -> None:
    a, b = leaf(eg, X), leaf(eg, [1.0, 2.0, 3.0])
    constant = fixed(eg, [5.0, 6.0, 7.0])
    function = lambda a, scale, b, c: a * scale * b.exp() + c
    assert gradcheck(function, (a, 2.0, b, constant), check_forward_ad=True)
    assert gradgradcheck(function, (a, 2.0, b, constant))


def test_complex_derivatives() -> None:
    z = eg.tensor([1 + 2j, -0.5 + 0.3j], dtype=eg.complex128, requires_grad=True)
    for function in (
        lambda z: z * z, lambda z: z.abs(), lambda z: z.conj() * z, lambda z: z.real * z.imag,
        lambda z: z.exp(),
    ):  # fmt: skip
        assert gradcheck(function, (z,), check_forward_ad=True)
        assert gradgradcheck(function, (z,))
    x = leaf(eg, X)
    assert gradcheck(lambda x: eg.complex(x, x * x), (x,), check_forward_ad=True)


def test_wrong_derivatives_are_found() -> None:
    x = leaf(eg, X)
    with pytest.raises(GradcheckError, match=r"gradient of output 0.*finite differences"):
        gradcheck(wrong(3.0), (x,))
    assert gradcheck(wrong(2.0), (x,))
    assert not gradcheck(wrong(3.0), (x,), raise_exception=False)


def test_wrong_forward_mode_is_found() -> None:
    x = leaf(eg, X)
    assert gradcheck(wrong(jvp_factor=2.0), (x,))
    with pytest.raises(GradcheckError, match="forward derivative"):
        gradcheck(wrong(jvp_factor=2.0), (x,), check_forward_ad=True)


def test_wrong_second_derivatives_are_found() -> None:
    x = leaf(eg, X)
    function = wrong(second=True)
    assert gradcheck(function, (x,))
    with pytest.raises(GradcheckError):
        gradgradcheck(function, (x,))


def test_a_missing_gradient_is_found() -> None:
    x = leaf(eg, X)
    with pytest.raises(GradcheckError):
        gradcheck(lambda x: x.detach() * x.detach(), (x,))
    with pytest.raises(GradcheckError):
        gradcheck(lambda x: x * x.detach(), (x,))


def test_a_gradient_that_is_not_a_number_is_found() -> None:
    class Undefined(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * float("nan")

    with pytest.raises(GradcheckError):
        gradcheck(Undefined.apply, (leaf(eg, X),))


def test_a_function_that_is_not_repeatable_is_found() -> None:
    with pytest.raises(GradcheckError, match="another value each time"):
        gradcheck(lambda x: x * eg.rand(3, dtype=eg.float64), (leaf(eg, X),))


def test_single_precision_is_refused() -> None:
    with pytest.raises(GradcheckError, match="float64"):
        gradcheck(lambda x: x * 2, (eg.ones(2, requires_grad=True),))


def test_something_must_ask_for_a_gradient() -> None:
    with pytest.raises(ValueError, match="requires_grad"):
        gradcheck(lambda x: x * 2, (fixed(eg, X),))


def test_given_cotangents_of_the_second_order() -> None:
    x = leaf(eg, X)
    weights = leaf(eg, [1.0, -2.0, 3.0])
    assert gradgradcheck(lambda x: x**3, (x,), (weights,))


def test_inputs_and_gradients_are_left_alone() -> None:
    x = leaf(eg, X)
    gradcheck(lambda x: x.sin(), (x,), check_forward_ad=True)
    gradgradcheck(lambda x: x.sin(), (x,))
    np.testing.assert_array_equal(x.detach().numpy(), X)
    assert x.grad is None
