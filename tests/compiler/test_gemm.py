"""Products of matrices in programs: our kernels against float64, compiled forms against eager."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvmlite
import numpy as np
import pytest
from tests.compiler.steps import programs_of

import evergrad as eg
import evergrad.nn.functional as F
from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm import select
from evergrad.compiler.kernels.gemm.blocked import blocked_kernel, packing_kernel
from evergrad.compiler.kernels.gemm.microkernel import (
    Tile,
    copy_rows,
    pack_tiles,
    tile_for,
    transpose,
)
from evergrad.compiler.kernels.gemm.openblas import blas_kernel
from evergrad.compiler.kernels.gemm.packing import (
    LEFT,
    RIGHT,
    UNPACKED,
)
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.tiling import Tiling, row_tiling_of, tiling_of
from evergrad.compiler.native import jit
from evergrad.core import dtypes

Array = np.ndarray[Any, Any]

own = pytest.mark.skipif(not jit.has_fma(), reason="no fused multiply-add on this processor")
_GUARD = 7.0
TILE = tile_for(vector_for(dtypes.float32))


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([3, seed]).standard_normal(shape).astype(np.float32)


def laid(array: Array, transposed: bool, room: int = 0) -> Array:
    """The same numbers, in columns if transposed, with room between rows (or columns)."""
    given = array.swapaxes(-1, -2) if transposed else array
    memory = np.full((*given.shape[:-1], given.shape[-1] + room), np.nan, array.dtype)
    memory[..., : given.shape[-1]] = given
    view = memory[..., : given.shape[-1]]
    return view.swapaxes(-1, -2) if transposed else view


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def run(kernel: Kernel, *arrays: Array) -> None:
    """All chunks of a kernel, in an order that is not theirs, in scratch memory full of NaN."""
    function = jit.function_of(
        jit.addresses([kernel])[kernel.name], ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )
    block = np.array([*map(address, arrays), *kernel.numbers], np.int64)
    scratch = np.full(kernel.scratch // 4 + 16, np.nan, np.float32)
    for chunk in np.random.default_rng(0).permutation(kernel.chunks):
        function(address(block), int(chunk), address(scratch))


def multiplied(
    a: Array, b: Array, room: int = 0, prepack: bool = False, start: Array | None = None,
    tile: Tile = TILE,
) -> tuple[Array, Tiling]:  # fmt: skip
    """The product by our kernels, and its tiling; nothing beside it may be written."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    product = Product(a, b, batch)
    tiling = tiling_of(product, tile, product.n + room, prepack, accumulate=start is not None)
    memory = np.full((*batch, product.m, product.n + room), _GUARD, a.dtype)
    if start is not None:
        memory[..., : product.n] = start
    factors = [a, b]
    for side in tiling.prepacked:
        packed = np.full(tiling.packed_elements(side), np.nan, a.dtype)
        number = tiling.operand_of(side)
        run(packing_kernel(product, tile, tiling, side), factors[number], packed)
        factors[number] = packed
    run(blocked_kernel(product, tile, tiling), *factors, memory)
    assert (memory[..., product.n :] == _GUARD).all()
    return memory[..., : product.n], tiling


def assert_product(found: Array, a: Array, b: Array) -> None:
    """As near to the exact product as sums of so many roundings can be."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    bound = (a.shape[-1] + 1) * np.finfo(found.dtype).eps * size
    assert (np.abs(found - exact) <= bound).all()


EXTENTS = [
    (1, 1, 1), (1, 17, 5), (2, 3, 1), (7, 5, 3), (8, 48, 4), (9, 49, 5), (10, 64, 33), (16, 16, 16),
    (33, 17, 385), (64, 96, 64), (65, 100, 130), (128, 112, 390), (31, 145, 769), (300, 10, 70),
    (5, 320, 300), (257, 65, 9),
]  # fmt: skip


@own
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("extents", EXTENTS, ids=lambda e: "x".join(map(str, e)))
def test_products_are_exact_to_rounding(
    extents: tuple[int, int, int], turned: tuple[bool, bool]
) -> None:
    m, n, k = extents
    # A vector with room between its elements is no matrix: it is copied before.
    for room in (0, 3) if min(extents) > 1 else (0,):
        a = laid(normal(m, k), turned[0], room)
        b = laid(normal(k, n, seed=1), turned[1], room)
        for prepack in (False, True):
            found, _ = multiplied(a, b, room, prepack)
            assert_product(found, a, b)


@own
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_pieces_and_preparation_of_large_products(turned: tuple[bool, bool]) -> None:
    seen = set()
    for m, n, k in ((1300, 464, 400), (130, 1030, 1100), (1040, 64, 257)):
        a, b = laid(normal(m, k), turned[0]), laid(normal(k, n, seed=1), turned[1])
        for prepack in (False, True):
            found, tiling = multiplied(a, b, 1, prepack)
            assert_product(found, a, b)
            assert tiling.chunks > 1
            seen |= set(tiling.prepacked)
    assert seen == ({LEFT, RIGHT} if turned[0] else {RIGHT})


# Registers of 512, 256 and 128 bits: LLVM makes each of them out of what there is.
VECTORS = [
    Vector("float", 16, 4), Vector("float", 8, 4), Vector("float", 4, 4),
    Vector("double", 8, 8), Vector("double", 4, 8), Vector("double", 2, 8),
]  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.mangled)
def test_tiles_of_other_machines(vector: Vector) -> None:
    found = np.float32 if vector.size == 4 else np.float64
    for turned in ((False, False), (False, True), (True, False), (True, True)):
        for m, n, k in ((1, 5, 3), (17, 23, 9), (70, 130, 300)):
            a = laid(normal(m, k).astype(found), turned[0], 1 if min(m, k) > 1 else 0)
            b = laid(normal(k, n, seed=1).astype(found), turned[1], 3)
            for prepack in (False, True):
                result, _ = multiplied(a, b, 2, prepack, tile=tile_for(vector))
                assert_product(result, a, b)


@pytest.mark.parametrize(("vector", "triple", "cpu", "word"), [
    (Vector("float", 4, 4), "aarch64-linux-gnu", "neoverse-n1", "fmla"),
    (Vector("float", 8, 4), "x86_64-linux-gnu", "haswell", "vfmadd"),
    (Vector("float", 16, 4), "x86_64-linux-gnu", "icelake-server", "vfmadd"),
])  # fmt: skip
def test_text_becomes_code_of_other_machines(
    vector: Vector, triple: str, cpu: str, word: str
) -> None:
    llvmlite.initialize_all_targets()
    llvmlite.initialize_all_asmprinters()
    product, tile = Product(normal(64, 64), normal(64, 64), ()), tile_for(vector)
    kernel = blocked_kernel(product, tile, tiling_of(product, tile, 64, may_prepack=False))
    module = llvmlite.parse_assembly(jit.module_ir([kernel]))
    machine = llvmlite.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=2)
    assert word in machine.emit_assembly(module)


@own
def test_a_small_left_factor_is_multiplied_from_the_right() -> None:
    a, b = normal(100, 700), laid(normal(700, 1000, seed=1), True)
    found, tiling = multiplied(a, b, 5)
    assert tiling.transposed
    assert_product(found, a, b)


@own
def test_a_wide_factor_is_not_laid_out_for_the_gradient_of_a_weight() -> None:
    """It is packed_rows out piece by piece, and the other one is taken as it lies."""
    for m, n in ((384, 1536), (1536, 384), (320, 1290)):
        a, b = laid(normal(m, 2050), True), normal(2050, n, seed=1)
        found, tiling = multiplied(a, b, 5, prepack=True)
        assert not tiling.prepacked
        assert bool(tiling.transposed) == (m < n)
        assert_product(found, a, b)


@own
def test_a_large_left_factor_whose_columns_lie_in_order_is_not_dealt_out() -> None:
    for m, n, k in ((256, 64, 1024), (250, 60, 1030)):
        a, b = laid(normal(m, k), True, 3), normal(k, n, seed=1)
        found, tiling = multiplied(a, b, 5, prepack=True)
        assert tiling.transposed
        assert_product(found, a, b)


@own
@pytest.mark.parametrize("extents", [(256, 1024, 1024), (1024, 256, 1024), (192, 768, 2048)])
def test_of_two_factors_as_deep_the_narrow_one_is_multiplied_as_it_lies(
    extents: tuple[int, int, int],
) -> None:
    m, n, k = extents
    a, b = laid(normal(m, k), True), normal(k, n, seed=1)
    found, tiling = multiplied(a, b, 5, prepack=True)
    assert bool(tiling.transposed) == (m < n) and tiling.b_packing == UNPACKED
    assert_product(found, a, b)


@own
@pytest.mark.parametrize(("turned", "prepack", "depth"), [
    (False, True, 1024), (False, False, 512), (True, True, 512),
])  # fmt: skip
def test_blocks_are_deep_if_nothing_is_packed_in_a_piece(
    turned: bool, prepack: bool, depth: int
) -> None:
    a, b = laid(normal(1024, 1024), turned), normal(1024, 1024, seed=1)
    found, tiling = multiplied(a, b, prepack=prepack)
    assert tiling.depth == depth and tiling.chunks == 8
    assert_product(found, a, b)


@own
@pytest.mark.parametrize("found", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [5, 6, 13, 100, 1030])
def test_rows_of_four_registers_are_taken_as_a_whole(rows: int, found: Any) -> None:
    tile = tile_for(vector_for(dtypes.float32 if found is np.float32 else dtypes.float64))
    for lanes in (3 * tile.lanes + 1, 4 * tile.lanes - 1, 4 * tile.lanes):
        for depth in (1, 64, 515):
            a = laid(normal(rows, depth).astype(found), False, 3)
            for turned in (False, True):
                b = laid(normal(depth, lanes, seed=1).astype(found), turned, 3 * (depth > 1))
                for prepack in (False, True):
                    result, tiling = multiplied(a, b, 2, prepack, tile=tile)
                    wide = tile.wide or tile
                    assert tiling.transposed or tiling.panel == wide.panel
                    assert_product(result, a, b)


@own
def test_rows_for_a_loop_are_cut_into_an_even_number_of_parts() -> None:
    product = Product(laid(normal(576, 2048), True), normal(2048, 192), ())
    tiling = row_tiling_of(product, TILE)
    assert tiling is not None and tiling.chunks == (12 if TILE.rows == 8 else 18)


@own
@pytest.mark.parametrize("shapes", [
    ((5, 20, 30), (5, 30, 50)), ((4, 3, 33, 16), (4, 3, 16, 70)), ((6, 1, 24, 40), (1, 7, 40, 24)),
    ((2, 3, 2, 9, 5), (5, 8)), ((40, 8), (3, 8, 20)), ((2, 256, 300), (2, 300, 200)),
])  # fmt: skip
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False)])
def test_batches(shapes: tuple[Any, Any], turned: tuple[bool, bool]) -> None:
    a = laid(normal(*shapes[0]), turned[0], 2)
    b = laid(normal(*shapes[1], seed=1), turned[1], 1)
    for prepack in (False, True):
        found, _ = multiplied(a, b, 0, prepack)
        assert_product(found, a, b)


@own
def test_products_are_added() -> None:
    for m, n, k in ((9, 20, 5), (64, 130, 800)):
        a, b, start = normal(m, k), normal(k, n, seed=1), normal(m, n, seed=2)
        found, _ = multiplied(a, b, 0, True, start)
        alone, _ = multiplied(a, b)
        np.testing.assert_allclose(found, start + alone, rtol=1e-5, atol=1e-4)


@own
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_nan_and_infinity_stay_in_their_rows_and_columns(turned: tuple[bool, bool]) -> None:
    a, b = normal(30, 40), normal(40, 50, seed=1)
    a[3, 5], a[29, 39], b[7, 49] = np.nan, np.inf, -np.inf
    found, _ = multiplied(laid(a, turned[0]), laid(b, turned[1]))
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(found[infinite], expected[infinite].astype(np.float32))
    assert np.isfinite(found[np.isfinite(expected)]).all()


@pytest.mark.parametrize("found", [dtypes.float32, dtypes.float64])
def test_openblas(found: Any) -> None:
    for turned in (False, True):
        a = laid(normal(3, 40, 70).astype(found.np), turned)
        b = laid(normal(3, 70, 90, seed=1).astype(found.np), turned)
        c = np.zeros((3, 40, 90), found.np)
        run(blas_kernel(Product(a, b, (3,)), found, 90), a, b, c)
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)


@own
def test_one_text_for_all_products() -> None:
    texts = set()
    for m, n, k in EXTENTS:
        product = Product(normal(m, k), normal(k, n), ())
        tiling = tiling_of(product, TILE, n, may_prepack=False)
        texts.add(blocked_kernel(product, TILE, tiling).ir)
    assert len(texts) == 1


@own
@pytest.mark.parametrize("found", [dtypes.float32, dtypes.float64])
def test_tiles_hold_their_sums_in_registers(found: Any) -> None:
    """LLVM orders what a turn of the loop loads; too early, and registers go to the stack."""
    a, tile = normal(64, 64).astype(found.np), tile_for(vector_for(found))
    product = Product(a, a, ())
    kernel = blocked_kernel(product, tile, tiling_of(product, tile, 64, may_prepack=False))
    code = jit.assembly(jit.module_ir([kernel]))
    strips = re.findall(r"^gemm_microkernel_\w+:.*?^\.Lfunc_end", code, re.MULTILINE | re.DOTALL)
    # That of wide tiles, if there are any, reads rows of A alone.
    assert len(strips) == 2 * tile.vectors + (tile.wide is not None)
    for strip in strips:
        # One at most, of what is computed once for all tiles; a mask of 256 bits is loaded again
        # for each run of K.
        assert len(re.findall(r"zmm.*rsp|rsp.*zmm|ymm.*\(%rsp", strip)) <= 1
        for block in re.split(r"^\.LBB\w+:", strip, flags=re.MULTILINE):
            assert block.count("vfmadd") < 2 or not re.search(r"rsp.*[yz]mm", block)
        assert "vfmadd" in strip


@pytest.mark.parametrize("packing", [copy_rows, pack_tiles, transpose])
def test_packing_asks_for_the_places_it_writes_to(packing: Any) -> None:
    """For each store of a turn: the line may be in the cache of another core."""
    text = packing(TILE).ir
    text = re.sub(r"^masked\d+\.whole:\n  store .*$", "", text, flags=re.MULTILINE)
    stores = len(re.findall(r"^ *store |call void @llvm\.masked\.store", text, re.MULTILINE))
    assert len(re.findall(r"@llvm\.prefetch\.p0\(ptr [^,]+, i32 1,", text)) == stores > 0


@own
def test_programs_share_object_code(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    object_codes = jit._object_codes

    def noted(wanted: Sequence[str]) -> list[tuple[str, bytes]]:
        texts.extend(wanted)
        return object_codes(wanted)

    monkeypatch.setattr(jit, "_object_codes", noted)
    monkeypatch.setattr(jit, "_addresses", {})
    product = Product(normal(64, 64), normal(64, 64), ())
    kernels = [
        blocked_kernel(product, TILE, tiling_of(product, TILE, 64, may_prepack=False)),
        blas_kernel(product, dtypes.float32, 64),
        blas_kernel(product, dtypes.float64, 64),
    ]
    jit.addresses(kernels)
    assert texts == [jit.module_ir([kernel]) for kernel in kernels]


@own
@pytest.mark.parametrize(("extents", "ours"), [
    ((2048, 768, 192), True), ((64, 120, 400), True), ((4, 1024, 1024), True),
    ((1024, 4, 1024), False), ((1, 120, 400), False), ((64, 10, 84), False), ((8, 8, 8), False),
])  # fmt: skip
def test_who_multiplies(extents: tuple[int, int, int], ours: bool) -> None:
    m, n, k = extents
    product = Product(normal(m, k), normal(k, n), ())
    assert select.is_blocked(product, dtypes.float32) is ours
    assert select.is_blocked(product, dtypes.float64) is ours
    assert not select.is_blocked(product, dtypes.int64)


# -- compiled -----------------------------------------------------------------------------------


def tensors(*shapes: tuple[int, ...], dtype: Any = eg.float32) -> list[Any]:
    return [eg.tensor(normal(*s, seed=n), dtype=dtype) for n, s in enumerate(shapes)]


FORMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "linear": (F.linear, ((6, 30, 53), (70, 53), (70,))),
    "linear of a vector": (F.linear, ((33,), (70, 33))),
    "matmul": (eg.matmul, ((90, 50), (50, 65))),
    "matmul of vectors": (eg.matmul, ((20,), (20, 65))),
    "matmul broadcast": (eg.matmul, ((4, 1, 12, 20), (3, 20, 17))),
    "both transposed": (lambda a, b: a.T @ b.T, ((50, 90), (65, 50))),
    "heads": (
        lambda q, k: q.view(2, 96, 3, 8).transpose(1, 2) @ k.view(2, 96, 3, 8).permute(0, 2, 3, 1),
        ((2, 96, 24), (2, 96, 24)),
    ),
    "every second column": (lambda a, b: a[:, ::2] @ b[::2], ((90, 80), (80, 60))),
    "mm": (eg.mm, ((1, 40), (40, 20))),
    "bmm": (eg.bmm, ((5, 19, 40), (5, 40, 20))),
    "addmm": (eg.addmm, ((20,), (9, 40), (40, 20))),
    "einsum": (lambda a, b: eg.einsum("bij,bkj->bik", a, b), ((3, 40, 31), (3, 60, 31))),
    "joined": (lambda a, b: eg.cat([a @ b, a @ b * 2], 1), ((60, 40), (40, 70))),
}


@pytest.mark.parametrize("dtype", [eg.float32, eg.float64])
@pytest.mark.parametrize("form", FORMS)
def test_forms_and_their_gradients(form: str, dtype: Any) -> None:
    function, shapes = FORMS[form]

    def step(*given: Any) -> Any:
        result = function(*given)
        return result.detach(), *eg.autograd.grad((result * result).sum(), given)

    given = [t.requires_grad_() for t in tensors(*shapes, dtype=dtype)]
    tolerance = 1e-11 if dtype is eg.float64 else 2e-4
    for found, expected in zip(eg.compile(step)(*given), step(*given), strict=True):
        assert found.dtype is dtype
        np.testing.assert_allclose(
            found.detach().numpy(), expected.detach().numpy(), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("shapes", [((0, 3), (3, 4)), ((2, 0), (0, 4)), ((5, 3), (3, 0))])
def test_empty_products(shapes: tuple[Any, Any]) -> None:
    a, b = tensors(*shapes)
    np.testing.assert_array_equal(eg.compile(eg.matmul)(a, b).numpy(), (a @ b).numpy())


@own
def test_a_factor_of_many_pieces_is_laid_out_once() -> None:
    compiled = eg.compile(F.linear)
    given = tensors((2048, 192), (65, 192))
    found = compiled(*given)
    assert_product(found.numpy(), given[0].numpy(), given[1].numpy().T)
    (program,) = programs_of(compiled)
    labels = [instruction.label for instruction in program.instructions]
    assert labels == ["pack for linear 2048x65x192", "linear 2048x65x192"]


def test_results_do_not_depend_on_the_threads() -> None:
    def step(x: Any, w: Any, v: Any) -> Any:
        hidden = F.linear(x, w).relu()
        return hidden.detach(), *eg.autograd.grad((hidden @ v).square().sum(), (w, v))

    given = [t.requires_grad_() for t in tensors((300, 190), (400, 190), (400, 70))]
    compiled = eg.compile(step)
    found = []
    for threads in (1, 2, 3):
        eg.set_num_threads(threads)
        compiled(*given)
        (program,) = programs_of(compiled)
        program.threads = threads
        found.append([t.detach().numpy().tobytes() for t in compiled(*given)])
    assert found[0] == found[1] == found[2]


def test_a_training_step() -> None:
    def trained(compiled: bool) -> list[Array]:
        eg.manual_seed(0)
        model = eg.nn.Sequential(eg.nn.Linear(40, 130), eg.nn.Tanh(), eg.nn.Linear(130, 10))
        optimizer = eg.optim.SGD(model.parameters(), lr=0.1)
        (x,) = tensors((70, 40))

        def step() -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run_step = eg.compile(step) if compiled else step
        losses = [run_step().detach().numpy() for _ in range(3)]
        return [*losses, *(p.detach().numpy() for p in model.parameters())]

    for found, expected in zip(trained(True), trained(False), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@own
def test_what_is_foreseen_is_what_multiplies() -> None:
    """One text for each type of elements, and none for products that are left to OpenBLAS."""

    def step(a: Any, b: Any, tiny: Any) -> Any:
        narrow = (a @ b).relu() @ b.t()
        wide = (a.double() @ b.double()).tanh()
        return narrow, wide, tiny @ tiny

    compiled = eg.compile(step)
    compiled(eg.rand(64, 96), eg.rand(96, 80), eg.rand(4, 4))
    (variant,) = next(iter(compiled.variants.values()))
    kernels = [
        kernel
        for i in variant.program.instructions
        if i.label.startswith("matmul 64")
        for kernel in (i.kernel, *i.kernel.calls.values())
    ]
    used = {k.name for k in kernels if k.name.rpartition("_")[0] == "gemm"}
    assert {kernel.name for kernel in select.precompiled(variant.captured.graph)} == used
    assert len(used) == 2
