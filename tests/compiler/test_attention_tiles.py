"""What attention's kernels are made of: products by tiles, diagonals, heads one after the other."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler import attention, llvm
from evergrad.compiler.attention_text import EIGHT, lanes, up
from evergrad.compiler.attention_tiles import product
from evergrad.compiler.kernel import address_of

from .steps import programs_of
from .test_attention import assert_right, causal, leaves, normal, plain, with_grads

_PLACES = ("a", "b", "c", "soon")
_NUMBERS = (
    "across", "along", "rows", "depth", "b_row", "c_row", "vectors", "zeros", "fetched",
)  # fmt: skip


def product_function(more: bool) -> Any:
    """A product's helper function as one that can be called from here."""
    name, text, needs = product()
    wrapped = f"call_product_{more}"
    parameters = [*(f"ptr %{p}" for p in _PLACES), *(f"i64 %{n}" for n in _NUMBERS)]
    call = (
        f"  call void @{name}(ptr %a, i64 %across, i64 %along, i64 %rows, i64 %depth, ptr %b, "
        f"i64 %b_row, ptr %c, i64 %c_row, i64 %vectors, i1 {str(more).lower()}, i64 %zeros, "
        "ptr %soon, i64 0, ptr %soon, i64 0, i64 %fetched)"
    )
    define = f"define void @{wrapped}({', '.join(parameters)}) {{\n{call}\n  ret void\n}}\n"
    address = llvm.addresses_in("\n".join([*needs.values(), text, define]), [wrapped])[wrapped]
    types = [ctypes.c_void_p] * len(_PLACES) + [ctypes.c_int64] * len(_NUMBERS)
    return llvm.function_of(address, *types)


def multiplied(a: Any, b: Any, c: Any, rows: int, more: bool, zeros: int) -> Any:
    """C after the product of A's first rows with B; nothing is read or written far away."""
    found, soon = c.copy(), np.zeros(16, np.float32)
    product_function(more)(
        *map(address_of, (a, b, found, soon)), *a.strides, rows, a.shape[1], b.strides[0],
        c.strides[0], b.shape[1] // lanes(), zeros, 64,
    )  # fmt: skip
    return found


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("vectors", range(1, 10))
def test_products(vectors: int, more: bool) -> None:
    columns = vectors * lanes()
    for rows, depth in ((1, 1), (4, 7), (11, 32), (16, 0)):
        a = normal(rows, depth, seed=rows)
        b, c = normal(depth, columns, seed=1), normal(up(rows, EIGHT), columns, seed=2)
        expected = (c[:rows] if more else 0) + np.float64(a) @ b
        for lying in (a, np.asfortranarray(a)):
            found = multiplied(lying, b, c, rows, more, zeros=-(1 << 40))
            np.testing.assert_allclose(found[:rows], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize("zeros", [-3, 0, 5, 30])
def test_products_of_a_triangle(vectors: int, zeros: int) -> None:
    """What stands before the diagonal is not read as a number, or is zero."""
    rows, depth, columns = 16, 24, vectors * lanes()
    b, c = normal(depth, columns, seed=1), normal(rows, columns, seed=2)
    a = np.triu(normal(rows, depth), zeros)
    expected = c + np.float64(a) @ b
    # Whole tiles of a row or more begin where their first row does.
    for row in range(0, rows, EIGHT):
        a[row : row + EIGHT, : max(row + zeros, 0)] = np.nan
    found = multiplied(a, b, c, rows, more=True, zeros=zeros)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [31, 32, 33, 63, 64, 65, 96, 97, 127, 129, 161])
def test_ends_of_diagonals(length: int) -> None:
    for keys in (length, length - 30, length + 40):
        shapes = (1, 2, length, 8), (1, 2, keys, 8), (1, 2, keys, 20)
        assert_right(causal, *(normal(*shape, seed=n) for n, shape in enumerate(shapes)))


@pytest.mark.parametrize("form", [plain, causal])
@pytest.mark.parametrize("heads", [16, 33, 70])
def test_heads_one_after_the_other(form: Any, heads: int) -> None:
    """Heads that lie between those of others, several in a chunk, the last of which has fewer."""

    def between(q: Any, k: Any, v: Any) -> Any:
        return form(*(x.transpose(0, 1) for x in (q, k, v)))

    given = [normal(70, heads, 10, seed=n) for n in range(3)]
    compiled = assert_right(between, *given)
    (program,) = programs_of(compiled)
    chunks = [i.kernel.chunks for i in program.instructions if "attention" in i.label]
    run = max(1, heads // 16)
    assert chunks == [-(-heads // run)] * 2
    found = []
    for threads in (1, 2, 3):
        program.threads = threads
        found.append([x.numpy().tobytes() for x in compiled(*leaves(*given))])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("width", [16, 32, 40])
@pytest.mark.parametrize("length", [70, 150])
def test_rows_far_apart_and_in_one_piece(width: int, length: int) -> None:
    """Results do not depend on where keys and values lie, to the last bit."""

    def cut(q: Any, k: Any, v: Any) -> Any:
        return causal(*(x[..., :width] for x in (q, k, v)))

    given = [normal(2, 3, length, width, seed=n) for n in range(3)]
    found = []
    for spare in (0, 24):
        wide = [np.pad(array, [(0, 0)] * 3 + [(0, spare)]) for array in given]
        results = eg.compile(with_grads(cut))(*leaves(*wide))
        found.append([x.numpy()[..., :width].tobytes() for x in results])
    assert found[0] == found[1]


def test_few_heads_are_cut_by_queries() -> None:
    compiled = assert_right(plain, *(normal(1, 2, 600, 8, seed=n) for n in range(3)))
    (program,) = programs_of(compiled)
    (forward,) = [i for i in program.instructions if i.label == "attention"]
    assert forward.kernel.chunks > 2 * attention._FEW_HEADS // 4


@pytest.mark.parametrize("form", [plain, causal])
def test_scratch_memory_is_written_before_it_is_read(form: Any) -> None:
    shapes = (20, 150, 9), (20, 203, 9), (20, 203, 9)
    given = leaves(*(normal(*shape, seed=n) for n, shape in enumerate(shapes)))
    compiled = eg.compile(with_grads(form))
    before = [x.numpy().tobytes() for x in compiled(*given)]
    (program,) = programs_of(compiled)
    for run in program.segments:
        run.scratch[:] = 0xFF  # NaN
    assert [x.numpy().tobytes() for x in compiled(*given)] == before
