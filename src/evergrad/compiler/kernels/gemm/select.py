"""Matrix products: which equations are some, and who multiplies.

The one place where an implementation of a product is chosen: our own kernels (tiles, those for few
rows or columns, those for small products), or OpenBLAS.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from evergrad.compiler.codegen.ir_builder import is_native, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.blocked import own_kernel, prepare_kernel
from evergrad.compiler.kernels.gemm.epilogue import Awaited
from evergrad.compiler.kernels.gemm.microkernel import Tile, tile_for
from evergrad.compiler.kernels.gemm.openblas import NAMES, blas_kernel
from evergrad.compiler.kernels.gemm.problem import BATCH_DIMS, Product, as_it_lies
from evergrad.compiler.kernels.gemm.skinny import few_kernel
from evergrad.compiler.kernels.gemm.small import small_kernel
from evergrad.compiler.kernels.gemm.tiling import Cut, cut_of, row_cut_of
from evergrad.compiler.native.jit import has_fma
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.compiler.schedule.nodes import Group
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.matmul import LINEAR, MATMUL

__all__ = ["Product", "add_product", "needs_copy", "product_of"]

# With so few multiplications nothing is worth to be laid out or divided, ...
_TINY = 1 << 16
# with so few columns most of a register is idle, ...
_NARROW = 8
# and with few rows or columns OpenBLAS is faster as long as a product is small.
_SLIM = 16
_SMALL = 1 << 20
# Products of so many bytes are taken over row by row by the loop that reads them.
_WORTH_WAITING = 1 << 18


def product_of(eqn: Equation, a: Any, b: Any) -> Product | None:
    """A product equation on operands that lie so, if it can be done as they lie."""
    if eqn.outs[0].type.dtype not in NAMES or 0 in (*a.shape, *b.shape):
        return None
    if eqn.op is LINEAR:
        b = b.swapaxes(-1, -2)
        if a.ndim < 1 or b.ndim != 2:
            return None
    elif eqn.op is not MATMUL or a.ndim < 2 or b.ndim < 2:
        return None
    if b.ndim == 2 and a.ndim != 2:
        flat = _flattened(a)
        if flat is not None:
            a = flat
        elif a.ndim < 2:
            return None
    out = eqn.outs[0].type.shape
    batch = () if a.ndim == 2 and b.ndim == 2 else out[:-2]
    if len(batch) > BATCH_DIMS:
        return None
    found = Product(a, b, batch)
    return found if found.a is not None and found.b is not None else None


def _flattened(a: Any) -> Any:
    """All but the last dimension as one, if they lie so."""
    rows = prod(a.shape[:-1])
    lead = [(n, s) for n, s in zip(a.shape[:-1], a.strides[:-1], strict=True) if n != 1]
    for (_, outer), (extent, step) in pairwise(lead):
        if outer != extent * step:
            return None
    step = lead[-1][1] if lead else a.shape[-1] * a.itemsize
    return np.lib.stride_tricks.as_strided(a, (rows, a.shape[-1]), (step, a.strides[-1]))


def needs_copy(var: Var) -> bool:
    """Whether a factor must be laid out anew before it can be multiplied."""
    layout = var.layout
    return layout.ndim >= 2 and layout.size > 0 and as_it_lies(layout) is None


def _can_be_ours(product: Product, found: Any) -> bool:
    return _has_kernels(found) and not _is_tiny(product)


def _has_kernels(found: Any) -> bool:
    return is_native(found) and has_fma()


def _is_tiny(product: Product) -> bool:
    return product.work * product.items < _TINY


def is_ours(product: Product, found: Any) -> bool:
    """Whether our tiles are faster than OpenBLAS (see bench/gemm.py)."""
    if not _can_be_ours(product, found) or product.n < _NARROW:
        return False
    return min(product.m, product.n) >= _SLIM or product.work > _SMALL


def few_of(product: Product, found: Any, leading: int) -> Kernel | None:
    """The kernel of a product one of whose factors is small, if that is the fastest."""
    if not _can_be_ours(product, found):
        return None
    return few_kernel(product, vector_for(found), leading)


def small_of(product: Product, found: Any, leading: int) -> Kernel | None:
    """The kernel of a small product, if it is one."""
    if not (_has_kernels(found) and _is_tiny(product)):
        return None
    return small_kernel(product, vector_for(found), leading)


def foreseen(graph: Graph) -> Iterator[Kernel]:
    """For each type of elements one product of a graph that is ours. Its text is the longest of
    most programs and known before any pass, so that it may be compiled during all of them."""
    known = set()
    for eqn in graph.equations:
        found = eqn.outs[0].type.dtype
        if eqn.op not in (MATMUL, LINEAR) or found in known:
            continue
        product = product_of(eqn, *(arg.layout for arg in eqn.args))
        if product is None or not is_ours(product, found):
            continue
        if few_of(product, found, product.n) is None:
            known.add(found)
            tile = tile_for(vector_for(found))
            yield own_kernel(product, tile, cut_of(product, tile, product.n, may_prepare=True))


def add_product(
    lowering: Lowering, label: str, product: Product, factors: list[Any], out: Var, leading: int
) -> None:
    """Add the instructions of a product of two values: one, or more that lay factors out first."""
    work = product.work * product.items // 8
    found = out.type.dtype
    kernel = few_of(product, found, leading)
    if kernel is None and not is_ours(product, found):
        kernel = small_of(product, found, leading) or blas_kernel(product, found, leading)
    if kernel is not None:
        lowering.add_kernel(label, kernel, factors, [out], work)
        return
    tile = tile_for(vector_for(found))
    cut = cut_of(product, tile, leading, may_prepare=True)
    given = _lay_out(lowering, label, product, tile, cut, factors)
    lowering.add_kernel(label, own_kernel(product, tile, cut), given, [out], work)


def _lay_out(
    lowering: Lowering, label: str, product: Product, tile: Tile, cut: Cut, factors: list[Any]
) -> list[Any]:
    """Add the instructions that lay factors out, as a cut says; the factors to multiply."""
    given = list(factors)
    for side in cut.prepared:
        number = cut.number_of(side)
        place = lowering.scratch(cut.laid_out(side) * tile.vector.size, f"factor of {label}")
        kernel = prepare_kernel(product, tile, cut, side)
        size = factors[number].type.numel
        lowering.add_kernel(f"lay out for {label}", kernel, [factors[number]], [place], size)
        given[number] = place
    return given


def _only_reader(lowering: Lowering, var: Var) -> Group | None:
    """The group that reads a value, if nothing else does and it may lie anywhere."""
    values = lowering.values
    if var in lowering.buffer_views or values.escapes(var):
        return None
    readers = {id(unit): unit for unit in (lowering.node_of[id(e)] for e in values.users(var))}
    found = next(iter(readers.values())) if len(readers) == 1 else None
    return found if isinstance(found, Group) else None


def _await_reader(lowering: Lowering, label: str, product: Product, eqn: Equation) -> bool:
    """Let a product wait for the loop that takes its rows over, if there is one and the whole
    product would not stay in cache until then."""
    out = eqn.outs[0]
    group = _only_reader(lowering, out)
    if group is None or id(group) in lowering.pending_products or product.items > 1:
        return False
    if out.type.nbytes < _WORTH_WAITING or not is_ours(product, out.type.dtype):
        return False
    tile = tile_for(vector_for(out.type.dtype))
    cut = row_cut_of(product, tile)
    if cut is None:
        return False
    given = _lay_out(lowering, label, product, tile, cut, list(eqn.args))
    lowering.add_kernel(label, own_kernel(product, tile, cut), given, [out], product.work // 8)
    alone = lowering.instructions.pop()
    behind = lowering.instructions[-1] if lowering.instructions else None
    lowering.pending_products[id(group)] = Awaited(eqn, alone, cut, behind)
    return True


@lowers(MATMUL, LINEAR)
def lower_product(lowering: Lowering, eqn: Equation) -> bool:
    a, b = eqn.args
    out = eqn.outs[0]
    product = product_of(eqn, a.layout, b.layout)
    if product is None:
        return False
    label = f"{eqn.op.name} {product.m}x{product.n}x{product.k}"
    if _await_reader(lowering, label, product, eqn):
        return True
    place = lowering.buffer_view(out)
    leading = place.strides[-2] // place.dtype.itemsize if len(place.shape) > 1 else product.n
    add_product(lowering, label, product, [a, b], out, max(leading, product.n))
    return True
