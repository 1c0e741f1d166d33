"""What attention's kernels are made of: products by tiles, diagonals, heads one after the other."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.codegen.function_builder import lanes
from evergrad.compiler.kernels.attention import call
from evergrad.compiler.kernels.attention.backward import backward
from evergrad.compiler.kernels.attention.common import ScoreStep
from evergrad.compiler.kernels.attention.primitives import EIGHT, QUERIES, up
from evergrad.compiler.kernels.attention.tiles import (
    GIVEN,
    SCORES,
    TRANSPOSED_SCORES,
    Layout,
    product,
)
from evergrad.compiler.native import jit
from evergrad.compiler.schedule.buffers import address_of

from .steps import lowered_programs_of, programs_of
from .test_attention import (
    assert_right,
    causal,
    leaves,
    masked,
    normal,
    plain,
    shared,
    with_grads,
)

_PLACES = ("a", "b", "before", "to", "soon")
_NUMBERS = (
    "across", "rows", "depth", "b_row", "before_row", "to_row", "vectors", "fetched",
)  # fmt: skip


def product_function(layout: Layout, more: bool, triangle: bool) -> Any:
    """A product's helper function as one that can be called from here."""
    name, text, needs = product(layout)
    wrapped = f"call_product_{layout.word}_{more}_{triangle}"
    parameters = [*(f"ptr %{p}" for p in _PLACES), *(f"i64 %{n}" for n in _NUMBERS)]
    call = (
        f"  call void @{name}(ptr %a, i64 %across, i64 %vectors, i64 %rows, i64 %depth, ptr %b, "
        "i64 %b_row, ptr %before, i64 %before_row, ptr %to, i64 %to_row, "
        f"i1 {str(more).lower()}, i1 {str(triangle).lower()}, ptr %soon, i64 0, ptr %soon, i64 0, "
        "i64 %fetched)"
    )
    define = f"define void @{wrapped}({', '.join(parameters)}) {{\n{call}\n  ret void\n}}\n"
    address = jit.addresses_in("\n".join([*needs.values(), text, define]), [wrapped])[wrapped]
    types = [ctypes.c_void_p] * len(_PLACES) + [ctypes.c_int64] * len(_NUMBERS)
    return jit.function_of(address, *types)


def multiplied(
    layout: Layout, a: Any, b: Any, before: Any, more: bool, triangle: bool = False
) -> Any:
    """What the product of A and B goes to, rows of another length than those it is added to;
    nothing is read or written far away."""
    rows, depth = a.shape
    a = laid(layout, a)
    wide = np.full((up(rows, EIGHT), b.shape[1] + 5), 7, np.float32)
    soon = np.zeros(16, np.float32)
    product_function(layout, more, triangle)(
        *map(address_of, (a, b, before, wide, soon)), a.strides[0], rows, depth, b.strides[0],
        before.strides[0], wide.strides[0], b.shape[1] // lanes(), 64,
    )  # fmt: skip
    assert (wide[:, -5:] == 7).all()
    return wide[:rows, :-5]


def laid(layout: Layout, a: Any) -> Any:
    """A matrix as it lies, scratch memory with numbers beyond its edges that do not count."""
    if layout is GIVEN:
        return a
    scratch = np.full((QUERIES, QUERIES), np.nan, np.float32)
    (scratch if layout is SCORES else scratch.T)[: a.shape[0], : a.shape[1]] = a
    return scratch


@pytest.mark.parametrize("layout", [GIVEN, SCORES, TRANSPOSED_SCORES])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("vectors", range(1, 10))
def test_products(vectors: int, more: bool, layout: Layout) -> None:
    columns = vectors * lanes()
    for rows, depth in ((1, 1), (4, 7), (11, 32), (16, 0)):
        a = normal(rows, depth, seed=rows)
        b, before = normal(depth, columns, seed=1), normal(up(rows, EIGHT), columns, seed=2)
        expected = (before[:rows] if more else 0) + np.float64(a) @ b
        found = multiplied(layout, a, b, before, more)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", [SCORES, TRANSPOSED_SCORES])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_products_of_a_triangle(vectors: int, layout: Layout) -> None:
    """What a tile of rows has none of is not read as a number."""
    rows, depth, columns = 24, 20, vectors * lanes()
    b, before = normal(depth, columns, seed=1), normal(rows, columns, seed=2)
    a = (np.triu if layout is SCORES else np.tril)(normal(rows, depth))
    expected = before + np.float64(a) @ b
    for row in range(0, rows, EIGHT):
        unseen = slice(0, row) if layout is SCORES else slice(row + EIGHT, None)
        a[row : row + EIGHT, unseen] = np.nan
    found = multiplied(layout, a, b, before, more=True, triangle=True)
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


def numbers_of(compiled: Any) -> dict[str, int]:
    """What the backward kernel was told, by name."""
    (program,) = lowered_programs_of(compiled)
    (kernel,) = [i.kernel for i in program.instructions if i.label == "attention_backward"]
    scale, triangle = ScoreStep("scale"), ScoreStep("causal")
    for steps in ((scale,), (scale, triangle), (triangle,)):
        text = backward(steps)
        if text.name == kernel.name:
            return dict(zip(text.numbers, kernel.numbers, strict=True))
    raise AssertionError(kernel.name)


@pytest.mark.parametrize("form", [plain, causal, shared])
@pytest.mark.parametrize("length", [1, 7, 8, 33, 63, 64, 65, 128, 136, 200])
@pytest.mark.parametrize("width", [8, 32, 40, 48])
def test_gradients_that_the_last_product_writes(form: Any, length: int, width: int) -> None:
    """Whole tiles go to their place, all others through scratch memory; shared keys and values get
    parts of several heads."""
    heads = 4 if form is shared else 2
    shapes = (8, heads, length, width), (8, 2, length, width), (8, 2, length, width)
    given = [normal(*shape, seed=n) for n, shape in enumerate(shapes)]
    compiled = assert_right(form, *given)
    numbers, has_whole_vectors = numbers_of(compiled), width % lanes() == 0
    assert numbers["direct"] == (length % EIGHT == 0 and has_whole_vectors)
    # Products read whole vectors: of other rows, those of a copy.
    assert numbers["pack_k"] == numbers["pack_v"] == (not has_whole_vectors)


def test_keys_that_no_query_sees_have_no_gradient() -> None:
    """No product writes these: they are cleared."""
    shapes = (9, 64, 16), (9, 136, 16), (9, 136, 16)
    given = [normal(*shape, seed=n) for n, shape in enumerate(shapes)]
    compiled = assert_right(causal, *given)
    _, _, dk, dv = compiled(*leaves(*given))
    assert not dk.numpy()[:, 64:].any() and not dv.numpy()[:, 64:].any()


@pytest.mark.parametrize("length", [7, 33, 63, 64, 65, 128])
@pytest.mark.parametrize("width", [8, 32, 40])
def test_masks_of_short_sequences(length: int, width: int) -> None:
    """Numbers that are added leave out nothing; bits may leave out a block, and then no product
    writes its gradients."""
    given = [normal(8, 2, length, width, seed=n) for n in range(3)]
    assert_right(masked, *given, normal(2, length, length, seed=3))
    seen = normal(2, length, length, seed=4) > -1
    seen[..., 0] = True
    seen[:, :, 64:] = False
    assert_right(masked, *given, seen)


@pytest.mark.parametrize("form", [plain, causal])
def test_scores_that_grow_from_block_to_block(form: Any) -> None:
    """What was summed is brought to each new largest score."""
    q, k, v = (normal(2, 2, 200, 24, seed=n) for n in range(3))
    k *= np.linspace(0.1, 3, 200, dtype=np.float32)[:, None]
    assert_right(form, q, k, v)


def test_gradients_inside_a_projection_for_any_number_of_threads() -> None:
    def projected(q: Any, k: Any, v: Any) -> Any:
        x = eg.cat([q, k, v], -1).sin().view(5, 128, 3, 4, 32)
        y = causal(*x.permute(2, 0, 3, 1, 4))
        return y.transpose(1, 2).reshape(5, 128, 128)

    given = [normal(5, 128, 128, seed=n) for n in range(3)]
    compiled = assert_right(projected, *given)
    assert numbers_of(compiled)["direct"]
    (program,) = programs_of(compiled)
    found = []
    for threads in (1, 2, 3):
        program.threads = threads
        found.append([x.numpy().tobytes() for x in compiled(*leaves(*given))])
    assert found[0] == found[1] == found[2]


def test_few_heads_are_cut_by_queries() -> None:
    compiled = assert_right(plain, *(normal(1, 2, 600, 8, seed=n) for n in range(3)))
    (program,) = programs_of(compiled)
    (forward,) = [i for i in program.instructions if i.label == "attention"]
    assert forward.kernel.chunks > 2 * call.FEW_HEADS // 4


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
