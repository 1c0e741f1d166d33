"""What varies from call to call costs no program for each value: numbers in the contexts of custom
functions, elements of tensors of the state."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest

import evergrad as eg

from .steps import program_count


class Reverse(eg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.neg() * ctx.scale, None


@pytest.mark.parametrize("is_returned", [False, True])
def test_a_number_in_the_context_of_a_custom_function(is_returned: bool) -> None:
    w = eg.ones(3, requires_grad=True)

    def step(x: eg.Tensor, n: int) -> Any:
        loss = Reverse.apply(w * x, 1 - math.exp(-n / 10)).sum()
        w.grad = None
        loss.backward()
        return loss if is_returned else w.grad.sum()

    compiled = eg.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 14):
            compiled(eg.ones(3), n)
            assert w.grad is not None
            assert w.grad[0].item() == pytest.approx(math.exp(-n / 10) - 1)
    assert program_count(compiled) <= 2


def test_a_pointer_in_a_buffer() -> None:
    rows, pointer = eg.zeros(4, 2), eg.zeros(1, dtype=eg.int64)

    @eg.compile
    def push(x: eg.Tensor) -> eg.Tensor:
        at = int(pointer)
        rows[at] = x
        pointer[0] = (at + 1) % 4
        return rows.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(20):
            push(eg.full((2,), float(n)))
    assert rows[:, 0].tolist() == [16.0, 17.0, 18.0, 19.0]
    assert push.last_call is not None
    assert push.last_call.kind == "whole"
    assert program_count(push) == 4


def test_a_count_in_a_buffer_that_never_recurs() -> None:
    count = eg.tensor(0)

    @eg.compile
    def step(x: eg.Tensor) -> eg.Tensor:
        scale = 2.0 if int(count) % 3 == 0 else 1.0
        count.add_(1)
        return x * scale

    for n in range(24):
        assert step(eg.ones(1)).item() == (1.0 if n % 3 else 2.0)
    assert step.last_call is not None
    assert step.last_call.kind == "whole"
    assert program_count(step) == 2


def test_numbers_of_a_tensor_that_others_write() -> None:
    scale = eg.tensor(1.0)

    @eg.compile
    def step(x: eg.Tensor) -> eg.Tensor:
        return x * scale.item()

    for n in range(16):
        scale.fill_(float(n))
        assert step(eg.ones(1)).item() == n
    assert program_count(step) <= 4
