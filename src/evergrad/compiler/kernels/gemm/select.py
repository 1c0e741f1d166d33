"""Selection of the kernel of a matrix product: blocked, skinny, small, or OpenBLAS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.codegen.ir_builder import is_native, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.blocked import blocked_kernel, packing_kernel
from evergrad.compiler.kernels.gemm.epilogue import (
    Deferred,
    RowProduct,
    TileProduct,
    heir_of,
    is_needed,
    placed_epilogue,
)
from evergrad.compiler.kernels.gemm.integers import lower_integer_product
from evergrad.compiler.kernels.gemm.microkernel import Tile, tile_for
from evergrad.compiler.kernels.gemm.openblas import NAMES, blas_kernel
from evergrad.compiler.kernels.gemm.problem import BATCH_DIMS, Product, as_matrix
from evergrad.compiler.kernels.gemm.rows import WIDENED_LINEAR
from evergrad.compiler.kernels.gemm.skinny import MOST_ROWS, skinny_kernel, widening_kernel
from evergrad.compiler.kernels.gemm.small import fits, small_kernel, stays_in_cache
from evergrad.compiler.kernels.gemm.tiling import Tiling, row_tiling_of, tiling_of
from evergrad.compiler.native.jit import has_fma
from evergrad.compiler.native.target import machine
from evergrad.compiler.schedule.buffers import full_view
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.compiler.schedule.nodes import Group
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.matmul import LINEAR, MATMUL

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype
    from evergrad.core.tensor import Array

__all__ = ["Product", "add_fused_product", "add_product", "needs_copy", "product_of"]

# Where kernels are faster than OpenBLAS (bench/gemm.py). With so few multiplications packing and
# chunks do not pay, ...
_TINY = 1 << 16
# of a longer K OpenBLAS, which multiplies what does not stay in L1, adds one after the other;
_LONG = 1 << 10
# with so few columns most lanes of a register are idle, ...
_NARROW = 8
# and with few rows or columns OpenBLAS is faster as long as a product is small.
_SLIM = 16
_SMALL = 1 << 20
# Smaller products stay in L2 until the loop reads them: an epilogue gains nothing.
_WORTH_FUSING = machine().l2_bytes // 4


def product_of(eqn: Equation, a: Array, b: Array) -> Product | None:
    """The product of an equation on operands with these layouts, if they need no copy."""
    row, out = eqn.op, eqn.outs[0].type.shape
    if eqn.outs[0].type.dtype not in NAMES or 0 in (*a.shape, *b.shape):
        return None
    if row is LINEAR:
        b = b.swapaxes(-1, -2)
        if a.ndim < 1 or b.ndim != 2:
            return None
    elif row is not MATMUL or a.ndim < 2 or b.ndim < 2:
        return None
    if b.ndim == 2 and a.ndim != 2:
        flat = flattened(a)
        if flat is not None:
            a = flat
        elif a.ndim < 2:
            return None
    batch = () if a.ndim == 2 and b.ndim == 2 else out[:-2]
    if len(batch) > BATCH_DIMS:
        return None
    found = Product(a, b, batch)
    return found if found.a is not None and found.b is not None else None


def flattened(a: Array) -> Any:
    """All but the last dimension as one, if their strides allow it."""
    rows = prod(a.shape[:-1])
    lead = [(n, s) for n, s in zip(a.shape[:-1], a.strides[:-1], strict=True) if n != 1]
    for (_, outer), (extent, step) in pairwise(lead):
        if outer != extent * step:
            return None
    step = lead[-1][1] if lead else a.shape[-1] * a.itemsize
    return np.lib.stride_tricks.as_strided(a, (rows, a.shape[-1]), (step, a.strides[-1]))


def needs_copy(var: Var) -> bool:
    """Whether a factor has to be copied before it can be multiplied."""
    layout = var.layout
    return layout.ndim >= 2 and layout.size > 0 and as_matrix(layout) is None


def _can_be_tiled(product: Product, found: object) -> bool:
    return _has_kernels(found) and not _is_small(product, found)


def _has_kernels(found: Any) -> bool:
    return is_native(found) and has_fma()


def _is_small(product: Product, found: Any) -> bool:
    """Whether packing and chunks do not pay. Of few rows times a weight the weight alone decides,
    so that a row is accumulated in the same order whatever the number of rows."""
    assert product.b is not None
    if product.items == 1 and product.m <= MOST_ROWS and product.b.strides[0] == 1:
        return stays_in_cache(product, vector_for(found))
    if product.work * product.items >= _TINY:
        return False
    return product.k < _LONG or fits(product, vector_for(found))


def is_blocked(product: Product, found: object) -> bool:
    """Whether blocked kernels are faster than OpenBLAS (see bench/gemm.py)."""
    if not _can_be_tiled(product, found) or product.n < _NARROW:
        return False
    return min(product.m, product.n) >= _SLIM or product.work > _SMALL


def skinny_of(product: Product, found: dtype, leading: int) -> Kernel | None:
    """The kernel of a skinny product, if it is one."""
    if not _can_be_tiled(product, found):
        return None
    return skinny_kernel(product, vector_for(found), leading)


def small_of(product: Product, found: dtype, leading: int) -> Kernel | None:
    """The kernel of a small product, if it is one."""
    if not (_has_kernels(found) and _is_small(product, found)):
        return None
    return small_kernel(product, vector_for(found), leading)


def precompiled(graph: Graph) -> Iterator[Kernel]:
    """For each element type a blocked kernel that a graph needs. Its IR is the longest of most
    programs and known before any pass, so that it is compiled while passes run."""
    known = set()
    for eqn in graph.equations:
        found = eqn.outs[0].type.dtype
        if eqn.op not in (MATMUL, LINEAR) or found in known:
            continue
        product = product_of(eqn, *(arg.layout for arg in eqn.args))
        if product is None or not is_blocked(product, found):
            continue
        if skinny_of(product, found, product.n) is None:
            known.add(found)
            tile = tile_for(vector_for(found))
            yield blocked_kernel(
                product, tile, tiling_of(product, tile, product.n, may_prepack=True)
            )


def add_product(
    lowering: Lowering, label: str, product: Product, factors: Sequence[object],
    out: Var, leading: int, tile: Tile | None = None,
) -> None:  # fmt: skip
    """Add the instructions of a product of two values, with those that prepack factors; with a
    given tile it is blocked."""
    work = product.work * product.items // 8
    if tile is None:
        found = out.type.dtype
        kernel = skinny_of(product, found, leading)
        if kernel is None and not is_blocked(product, found):
            kernel = small_of(product, found, leading) or blas_kernel(product, found, leading)
        if kernel is not None:
            lowering.add_kernel(label, kernel, factors, [out], work)
            return
        tile = tile_for(vector_for(found))
    tiling = tiling_of(product, tile, leading, may_prepack=True)
    given = _prepack(lowering, label, product, tile, tiling, factors)
    lowering.add_kernel(label, blocked_kernel(product, tile, tiling), given, [out], work)


def _prepack(
    lowering: Lowering,
    label: str,
    product: Product,
    tile: Tile,
    tiling: Tiling,
    factors: Sequence[object],
) -> list[object]:
    """Add the instructions that prepack factors; the factors to multiply."""
    given = list(factors)
    for side in tiling.prepacked:
        number = tiling.operand_of(side)
        place = lowering.scratch(
            tiling.packed_elements(side) * tile.vector.size, f"factor of {label}"
        )
        kernel = packing_kernel(product, tile, tiling, side)
        size = product.k * (product.n if number else product.m)
        lowering.add_kernel(f"pack for {label}", kernel, [factors[number]], [place], size)
        given[number] = place
    return given


def add_fused_product(
    lowering: Lowering, label: str, product: Product, eqn: Equation, factors: Sequence[object],
    leading: int, tile: Tile | None = None,
) -> None:  # fmt: skip
    """Add the instructions of a product, or defer it to the group that reads it first: as its
    epilogue, or as a loop over its rows."""
    out = eqn.outs[0]
    group = _first_reader(lowering, out)
    placed = None if group is None else placed_epilogue(lowering, group, out, product.n)
    heir = (
        None
        if group is None or placed is None
        else heir_of(lowering, group, out, placed, product.n)
    )
    if group is not None and heir is None:
        blocked = tile or tile_for(vector_for(out.type.dtype))
        if _defer_rows(lowering, label, product, eqn, factors, blocked, group):
            return
    add_product(lowering, label, product, factors, out, leading, tile)
    if group is not None and placed is not None:
        if heir is not None:
            lowering.buffer_views[heir] = full_view(lowering.buffer_view(out).buffer, heir)
        deferred = _deferred(lowering, eqn)
        lowering.pending_products[id(group)] = TileProduct(deferred, placed, leading)


def _first_reader(lowering: Lowering, var: Var) -> Group | None:
    """The group that reads a value before all other nodes, unless it is another's epilogue."""
    nodes = {id(e): lowering.node_of[id(e)] for e in lowering.values.users(var)}.values()
    first = min(nodes, key=lowering.place_of, default=None)
    if not isinstance(first, Group) or id(first) in lowering.pending_products:
        return None
    return first


def _defer_rows(
    lowering: Lowering, label: str, product: Product, eqn: Equation, factors: Sequence[object],
    tile: Tile, group: Group,
) -> bool:  # fmt: skip
    """Defer a product to the loop over its rows, if the whole product would not stay in cache until
    then."""
    out = eqn.outs[0]
    if product.items > 1 or is_needed(lowering, out, group):
        return False
    if out.type.nbytes < _WORTH_FUSING or not is_blocked(product, out.type.dtype):
        return False
    tiling = row_tiling_of(product, tile)
    if tiling is None:
        return False
    given = _prepack(lowering, label, product, tile, tiling, factors)
    kernel = blocked_kernel(product, tile, tiling)
    lowering.add_kernel(label, kernel, given, [out], product.work // 8)
    deferred = _deferred(lowering, eqn)
    lowering.pending_products[id(group)] = RowProduct(deferred, tiling)
    return True


def _deferred(lowering: Lowering, eqn: Equation) -> Deferred:
    """The last instruction, of a product, taken back."""
    alone = lowering.instructions.pop()
    behind = lowering.instructions[-1] if lowering.instructions else None
    return Deferred(eqn, alone, behind)


@lowers(MATMUL, LINEAR)
def lower_product(lowering: Lowering, eqn: Equation) -> bool:
    a, b = eqn.args
    out = eqn.outs[0]
    product = product_of(eqn, a.layout, b.layout)
    if product is None:
        return eqn.op is MATMUL and lower_integer_product(lowering, eqn)
    label = f"{eqn.op.name} {product.m}x{product.n}x{product.k}"
    place = lowering.strides(out)
    leading = place[-2] // out.type.dtype.itemsize if len(place) > 1 else product.n
    add_fused_product(lowering, label, product, eqn, [a, b], max(leading, product.n))
    return True


@lowers(WIDENED_LINEAR)
def lower_widened_linear(lowering: Lowering, eqn: Equation) -> bool:
    x, weight = eqn.args
    rows = flattened(x.layout)
    if rows is None:
        return False
    product = Product(rows, weight.layout.swapaxes(0, 1), ())
    if product.a is None or product.b is None:
        return False
    out = eqn.outs[0]
    kernel = widening_kernel(product, vector_for(out.type.dtype), product.n, weight.type.dtype)
    label = f"{eqn.op.name} {product.m}x{product.n}x{product.k}"
    lowering.add_kernel(label, kernel, [x, weight], [out], product.work // 8)
    return True
