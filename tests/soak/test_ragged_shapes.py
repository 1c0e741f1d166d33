"""Gradients of the variable-shape algebra for all pairs of shapes up to rank 3."""

from __future__ import annotations

import itertools

import pytest
from tests.ragged.values import OPERATIONS, SHAPES, applied, random

from evergrad.autograd import gradcheck


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_for_all_pairs_of_shapes(name: str) -> None:
    call = applied(name)
    for a, b in itertools.product(SHAPES, SHAPES):
        inputs = random(a).requires_grad_(), random(b, 1).requires_grad_()
        assert gradcheck(call, inputs), (name, a, b)
