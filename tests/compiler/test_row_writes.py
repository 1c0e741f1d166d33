"""Writes of rows by number into outside tensors: in place, checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg

ROWS, WIDTH = 200, 70  # more than one chunk of columns


def table(seed: int = 0, rows: int = ROWS, dtype: Any = np.float32) -> eg.Tensor:
    return eg.tensor(np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(dtype))


def numbers(*values: int) -> eg.Tensor:
    return eg.tensor(values, dtype=eg.int64)


def read_then_put(p: Any, i: Any, v: Any) -> Any:
    p[i] = p[i] * 2 + v


def put_twice(p: Any, i: Any, v: Any) -> Any:
    p[i] = v
    p[i] = p[i] + v


def read_after(p: Any, i: Any, v: Any) -> Any:
    p.index_add_(0, i, v)
    return p.sum()


def read_before(p: Any, i: Any, v: Any) -> Any:
    total = (p * p).sum()
    p.index_add_(0, i, v)
    return total


def rows_of_itself(p: Any, i: Any, v: Any) -> Any:
    p.index_copy_(0, i, p[: len(i)])


def dense_after(p: Any, i: Any, v: Any) -> Any:
    p.index_add_(0, i, v)
    p.mul_(0.5)


def keeps_old(p: Any, i: Any, v: Any) -> Any:
    old = p.clone()
    p.index_add_(0, i, v)
    return old


def out_of_place(p: Any, i: Any, v: Any) -> Any:
    return p.index_add(0, i, v), p.index_copy(0, i, v)


WRITES: dict[str, Callable[..., Any]] = {
    "index_add_": lambda p, i, v: p.index_add_(0, i, v),
    "index_add_ scaled": lambda p, i, v: p.index_add_(0, i, v, alpha=-0.25),
    "index_copy_": lambda p, i, v: p.index_copy_(0, i, v),
    "index_put_": lambda p, i, v: p.index_put_((i,), v),
    "index_put_ accumulate": lambda p, i, v: p.index_put_((i,), v, accumulate=True),
    "setitem": lambda p, i, v: p.__setitem__(i, v),
    "setitem of one row": lambda p, i, v: p.__setitem__(i, v[0]),
    "setitem of a number": lambda p, i, v: p.__setitem__(i, 3.0),
}
for _function in (
    read_then_put, put_twice, read_after, read_before, rows_of_itself, dense_after, keeps_old,
    out_of_place,
):  # fmt: skip
    WRITES[_function.__name__.replace("_", " ")] = _function


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", WRITES)
def test_as_eager(name: str, threads: int) -> None:
    index, values = numbers(3, 7, 3, 199, 0, 7, 3), table(1, 7)
    expected, found = table(), table()
    compiled = eg.compile(lambda i, v: WRITES[name](found, i, v))
    before = eg.get_num_threads()
    eg.set_num_threads(threads)
    try:
        for _ in range(3):
            wanted = WRITES[name](expected, index, values)
            got = compiled(index, values)
            assert eg.equal(found, expected)
            for one, other in zip(_tensors(got), _tensors(wanted), strict=True):
                assert eg.allclose(one, other, rtol=1e-5, atol=1e-4)
    finally:
        eg.set_num_threads(before)


def _tensors(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return list(result)
    return [] if result is None else [result]


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "int8", "bool"])
def test_element_types(dtype: str) -> None:
    kind = getattr(eg, dtype)
    made = (table() * 10).to(kind)
    expected, found, values = made.clone(), made.clone(), (table(1, 4) * 10).to(kind)
    index = numbers(1, 2, 1, 5)
    eg.compile(lambda i, v: found.index_copy_(0, i, v))(index, values)
    assert eg.equal(found, expected.index_copy_(0, index, values))
    if dtype != "bool":
        eg.compile(lambda i, v: found.index_add_(0, i, v))(index, values)
        assert eg.equal(found, expected.index_add_(0, index, values))


def test_negative_numbers_count_from_the_end() -> None:
    expected, found = table(), table()
    eg.compile(lambda i, v: found.__setitem__(i, v))(numbers(-1, -200), table(1, 2))
    expected[numbers(-1, -200)] = table(1, 2)
    assert eg.equal(found, expected)


@pytest.mark.parametrize("wrong", [ROWS, -1])
def test_a_wrong_number_writes_nothing(wrong: int) -> None:
    first, second, counter = table(), table(2), eg.zeros(3)

    def step(i: Any, j: Any, v: Any) -> None:
        counter.add_(1)
        first.index_add_(0, i, v)
        second.index_copy_(0, j, v)

    compiled = eg.compile(step)
    good, values = numbers(1, 2), table(1, 2)
    compiled(good, good, values)
    kept = [t.clone() for t in (first, second, counter)]
    for pair in ((numbers(1, wrong), good), (good, numbers(wrong, 1))):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(*pair, values)
        for tensor, before in zip((first, second, counter), kept, strict=True):
            assert eg.equal(tensor, before)


@pytest.mark.parametrize("write", ["index_add_", "index_copy_", "setitem", "read then put"])
def test_memory_follows_the_rows(write: str) -> None:
    """64 rows of a table of 25 MB: the program holds no copy of the table."""
    large = eg.zeros(100_000, 64)
    index, values = numbers(*range(0, 6400, 100)), eg.ones(64, 64)
    compiled = eg.compile(lambda i, v: WRITES[write](large, i, v))
    compiled(index, values)
    assert compiled.plan(index, values).peak <= 4 * values.nbytes
    assert large.sum().item() > 0


def test_momentum_of_rows() -> None:
    """Two tables and a counter in one step, the second read at the same rows."""
    weight, mean, steps = table(), eg.zeros(ROWS, WIDTH), eg.zeros(())

    def step(w: Any, m: Any, s: Any, i: Any, g: Any) -> Any:
        s.add_(1)
        moved = m[i] * 0.9 + g
        m.index_copy_(0, i, moved)
        w.index_add_(0, i, moved, alpha=-0.1)
        return (g * g).sum()

    expected = [t.clone() for t in (weight, mean, steps)]
    compiled = eg.compile(lambda i, g: step(weight, mean, steps, i, g))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        index = eg.tensor(rng.permutation(ROWS)[:20])
        assert eg.allclose(
            compiled(index, table(seed, 20)), step(*expected, index, table(seed, 20))
        )
    for found, wanted in zip((weight, mean, steps), expected, strict=True):
        assert eg.allclose(found, wanted, rtol=1e-6, atol=1e-6)
