"""The native kernels of jagged attention against their NumPy evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.steps import programs_of

import evergrad as eg
from evergrad.ops.rows.jagged_attention import jagged_attention

# Lengths of queries and of keys (the same if none), and tokens behind the last sequence.
LENGTHS: dict[str, tuple[list[int], list[int] | None, int]] = {
    "blocks and remainders": ([5, 100, 1, 0, 64, 130], None, 0),
    "whole tiles": ([16, 64, 8], None, 9),
    "cross, one without keys": ([3, 4], [7, 0], 2),
    "more queries than keys": ([200], [64], 3),
    "more keys than queries": ([8], [72], 0),
}


def operands(lengths: str, heads: int, shared: int, width: int, value_width: int) -> list[Any]:
    own, others, extra = LENGTHS[lengths]
    ends, key_ends = np.cumsum([0, *own]), np.cumsum([0, *(others or own)])
    rng = np.random.default_rng(0)
    tokens, keys = ends[-1] + extra, key_ends[-1] + extra
    shapes = (
        (tokens, heads, width), (keys, shared, width), (keys, shared, value_width),
        (tokens, heads, value_width),
    )  # fmt: skip
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    return [eg.tensor(x) for x in (*arrays, ends, key_ends)]


def gradients(causal: bool) -> Any:
    def function(q: Any, k: Any, v: Any, g: Any, ends: Any, key_ends: Any) -> Any:
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        y = jagged_attention(q, k, v, ends, key_ends, scale=0.2, causal=causal)
        (y * g).sum().backward()
        return y.detach(), q.grad, k.grad, v.grad

    return function


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 2, 16, 16), (4, 2, 64, 64), (3, 3, 20, 7)])
def test_as_numpy(shape: tuple[int, ...], causal: bool) -> None:
    function = gradients(causal)
    compiled = eg.compile(function)
    for lengths in LENGTHS:
        args = operands(lengths, *shape)
        for found, expected in zip(compiled(*args), function(*args), strict=True):
            assert eg.allclose(found, expected, rtol=1e-5, atol=1e-5), lengths


def test_one_program_for_all_offsets() -> None:
    compiled = eg.compile(gradients(True))
    args = operands("blocks and remainders", 2, 2, 16, 16)
    for ends in ([0, 5, 5, 100, 200, 250, 300], [0, 0, 0, 0, 0, 0, 0], [3, 10, 20, 30, 40, 50, 60]):
        given = [*args[:4], eg.tensor(ends), eg.tensor(ends)]
        for found, expected in zip(compiled(*given), gradients(True)(*given), strict=True):
            assert eg.allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert len(list(programs_of(compiled))) == 1


def test_threads_do_not_change_bits() -> None:
    args = operands("blocks and remainders", 4, 2, 64, 64)
    compiled, found, before = eg.compile(gradients(True)), [], eg.get_num_threads()
    try:
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            found.append([x.numpy().tobytes() for x in compiled(*args)])
    finally:
        eg.set_num_threads(before)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "ends", [[0, 5, 4, 100, 200, 250, 300], [-1, 5, 10, 20, 30, 40, 50], [0, 1, 2, 3, 4, 5, 301]]
)
def test_wrong_offsets_are_refused(ends: list[int]) -> None:
    compiled = eg.compile(gradients(True))
    args = operands("blocks and remainders", 2, 2, 16, 16)
    compiled(*args)
    with pytest.raises(Exception, match="offsets must grow"):
        compiled(*args[:4], eg.tensor(ends), eg.tensor(ends))
    compiled(*args)
