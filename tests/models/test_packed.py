"""Packed weights: what a packed model computes, its bits for any number of rows, one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.models.packed import PackedLinear, pack
from evergrad.models.quantize import SmallLinear, quantize

from .test_gpt import made
from .tiny import GPTS

KINDS = ["float32", "bfloat16", "int8"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GPTS)
def test_a_packed_model_computes_the_same(name: str, kind: Any) -> None:
    model = quantize(made(GPTS[name]), kind)
    tokens = eg.tensor(np.random.default_rng(0).integers(11, size=(3, 6)))
    with eg.no_grad():
        before = model(tokens)
        assert pack(pack(model)) is model
        for function in (model, eg.compile(model)):
            assert eg.allclose(function(tokens), before, atol=2e-4, rtol=1e-4)


def test_a_tied_matrix_is_kept_once() -> None:
    model = pack(made(GPTS["gpt2"]))
    assert model.tokens.weight.data_ptr() == model.head.weight.data_ptr()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 31), (64, 32), (33, 200), (130, 65)])
def test_a_row_has_the_same_bits_in_every_batch(kind: Any, inputs: int, outputs: int) -> None:
    eg.manual_seed(0)
    weight, x = eg.randn(outputs, inputs), eg.randn(41, inputs)
    small = None if kind == "float32" else SmallLinear(weight, None, kind)
    layer = PackedLinear(weight) if small is None else PackedLinear(small.weight, small.scale)
    dense = weight if small is None else small.dense()
    run = eg.compile(layer)
    whole = run(x).numpy()
    assert np.allclose(whole, (x @ dense.T).numpy(), atol=1e-4)
    for count in (1, 2, 3, 5, 8, 9, 15, 16, 32):
        for first in (0, 41 - count):
            assert (run(x[first : first + count].clone()).numpy() == whole[first:][:count]).all()
