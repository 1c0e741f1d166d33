"""Matrix products: which ones BLAS can do as they lie, and the kernel that asks it.

The one place where an implementation of a product is chosen. There is one so far: OpenBLAS, called
by address with one thread for each piece; pieces depend on the shapes alone.
"""

from __future__ import annotations

import ctypes
from functools import cache
from math import prod
from typing import Any

from evergrad.compiler.kernel import Kernel
from evergrad.compiler.lowering import Lowering, lowers
from evergrad.compiler.scalar import Code
from evergrad.core import dtypes
from evergrad.core.trace import Equation, Var

_NAMES = {
    dtypes.float32: ("scipy_cblas_sgemm", "float"),
    dtypes.float64: ("scipy_cblas_dgemm", "double"),
}
_BATCH_DIMS = 3
# A piece is worth claiming if it has about this many multiplications.
_PIECE = 1 << 21
_MOST_PIECES = 16


class Matrix:
    """A matrix (or a stack of them) as BLAS wants it: transposed or not, and the leading extent."""

    __slots__ = ("leading", "transposed")

    def __init__(self, transposed: bool, leading: int) -> None:
        self.transposed = transposed
        self.leading = leading


def as_it_lies(layout: Any) -> Matrix | None:
    """The last two dimensions of an array for BLAS; ``None`` if they must be copied first."""
    rows, columns = layout.shape[-2:]
    size = layout.itemsize
    row_step, column_step = layout.strides[-2:]
    if rows == 1:
        row_step = max(columns * size, column_step if columns > 1 else 0, size)
    if columns == 1:
        column_step = size if rows == 1 or row_step != size else max(rows * size, size)
    if column_step == size and row_step % size == 0 and row_step >= columns * size:
        return Matrix(False, row_step // size)
    if row_step == size and column_step % size == 0 and column_step >= rows * size:
        return Matrix(True, column_step // size)
    return None


class Product:
    """``C = A B`` with shapes and strides in bytes; batches are broadcast."""

    def __init__(self, a: Any, b: Any, batch: tuple[int, ...]) -> None:
        self.m, self.k = a.shape[-2:]
        self.n = b.shape[-1]
        self.batch = batch
        self.a, self.b = as_it_lies(a), as_it_lies(b)
        self.a_steps = _batch_steps(a, batch)
        self.b_steps = _batch_steps(b, batch)


def _batch_steps(array: Any, batch: tuple[int, ...]) -> list[int]:
    steps = [0] * len(batch)
    own = array.shape[:-2]
    for d, (extent, step) in enumerate(zip(own, array.strides, strict=False)):
        if extent != 1:
            steps[len(batch) - len(own) + d] = step
    return steps


def product_of(eqn: Equation, a: Any, b: Any) -> Product | None:
    """A product equation on operands that lie so, if BLAS can do it."""
    if eqn.outs[0].type.dtype not in _NAMES or 0 in (*a.shape, *b.shape):
        return None
    if eqn.op.name == "linear":
        b = b.swapaxes(-1, -2)
        if a.ndim < 1 or b.ndim != 2:
            return None
    elif eqn.op.name != "matmul" or a.ndim < 2 or b.ndim < 2:
        return None
    if b.ndim == 2 and a.ndim != 2:
        flat = _flattened(a)
        if flat is not None:
            a = flat
        elif a.ndim < 2:
            return None
    out = eqn.outs[0].type.shape
    batch = () if a.ndim == 2 and b.ndim == 2 else out[:-2]
    if len(batch) > _BATCH_DIMS:
        return None
    found = Product(a, b, batch)
    return found if found.a is not None and found.b is not None else None


def _flattened(a: Any) -> Any:
    """All but the last dimension as one, if they lie so."""
    rows = prod(a.shape[:-1])
    lead = [(n, s) for n, s in zip(a.shape[:-1], a.strides[:-1], strict=True) if n != 1]
    for (_, outer), (extent, step) in zip(lead, lead[1:], strict=False):
        if outer != extent * step:
            return None
    step = lead[-1][1] if lead else a.shape[-1] * a.itemsize
    import numpy as np

    return np.lib.stride_tricks.as_strided(a, (rows, a.shape[-1]), (step, a.strides[-1]))


def needs_copy(var: Var) -> bool:
    """Whether a factor must be laid out anew before BLAS takes it."""
    layout = var.layout
    return layout.ndim >= 2 and layout.size > 0 and as_it_lies(layout) is None


@cache
def _library() -> Any:
    import scipy_openblas32 as openblas

    library = ctypes.CDLL(f"{openblas.get_lib_dir()}/{openblas.get_library(fullname=True)}")
    library.scipy_openblas_set_num_threads(1)
    return library


def _address(found: Any) -> int:
    symbol, _ = _NAMES[found]
    return int(ctypes.cast(getattr(_library(), symbol), ctypes.c_void_p).value or 0)


_ARGUMENTS = (
    "a", "b", "c", "m", "n", "k", "lda", "ldb", "ldc", "ta", "tb", "items", "per_chunk", "parts",
    "part_m", "part_n", "e1", "e2", "a0", "a1", "a2", "b0", "b1", "b2", "c_step", "blas",
)  # fmt: skip


@cache
def _kernel_text(found: Any) -> tuple[str, str]:
    """The kernel for an element type. A chunk is some whole products, or a part of one."""
    _, type = _NAMES[found]
    loads = []
    for place, word in enumerate(_ARGUMENTS):
        kind = "ptr" if place < 3 else "i64"
        loads.append(f"  %{word}_p = getelementptr i64, ptr %args, i64 {place}")
        loads.append(f"  %{word} = load {kind}, ptr %{word}_p")
    lines = "\n".join(loads)
    name = f"gemm_{type}"
    return (
        name,
        f"""
define void @{name}(ptr %args, i64 %chunk, ptr %scratch) nounwind {{
entry:
{lines}
  %first0 = udiv i64 %chunk, %parts
  %part = urem i64 %chunk, %parts
  %first = mul i64 %first0, %per_chunk
  %last0 = add i64 %first, %per_chunk
  %last = call i64 @llvm.smin.i64(i64 %last0, i64 %items)
  %m0 = mul i64 %part, %part_m
  %n0 = mul i64 %part, %part_n
  %m_left = sub i64 %m, %m0
  %n_left = sub i64 %n, %n0
  %whole_m = icmp eq i64 %part_m, 0
  %whole_n = icmp eq i64 %part_n, 0
  %mm0 = call i64 @llvm.smin.i64(i64 %m_left, i64 %part_m)
  %nn0 = call i64 @llvm.smin.i64(i64 %n_left, i64 %part_n)
  %mm = select i1 %whole_m, i64 %m, i64 %mm0
  %nn = select i1 %whole_n, i64 %n, i64 %nn0
  %a_is_t = icmp ne i64 %ta, 111
  %b_is_t = icmp ne i64 %tb, 111
  %a_row = select i1 %a_is_t, i64 1, i64 %lda
  %b_col = select i1 %b_is_t, i64 %ldb, i64 1
  %a_move = mul i64 %m0, %a_row
  %b_move = mul i64 %n0, %b_col
  %c_row = mul i64 %m0, %ldc
  %c_move = add i64 %c_row, %n0
  %a_from = getelementptr {type}, ptr %a, i64 %a_move
  %b_from = getelementptr {type}, ptr %b, i64 %b_move
  %c_from = getelementptr {type}, ptr %c, i64 %c_move
  %m32 = trunc i64 %mm to i32
  %n32 = trunc i64 %nn to i32
  %k32 = trunc i64 %k to i32
  %lda32 = trunc i64 %lda to i32
  %ldb32 = trunc i64 %ldb to i32
  %ldc32 = trunc i64 %ldc to i32
  %ta32 = trunc i64 %ta to i32
  %tb32 = trunc i64 %tb to i32
  %blas_at = inttoptr i64 %blas to ptr
  br label %item
item:
  %i = phi i64 [%first, %entry], [%i1, %item]
  %i2 = urem i64 %i, %e2
  %q = udiv i64 %i, %e2
  %i1x = urem i64 %q, %e1
  %i0 = udiv i64 %q, %e1
  %x0 = mul i64 %i0, %a0
  %x1 = mul i64 %i1x, %a1
  %x2 = mul i64 %i2, %a2
  %x01 = add i64 %x0, %x1
  %x = add i64 %x01, %x2
  %y0 = mul i64 %i0, %b0
  %y1 = mul i64 %i1x, %b1
  %y2 = mul i64 %i2, %b2
  %y01 = add i64 %y0, %y1
  %y = add i64 %y01, %y2
  %z = mul i64 %i, %c_step
  %a_at = getelementptr i8, ptr %a_from, i64 %x
  %b_at = getelementptr i8, ptr %b_from, i64 %y
  %c_at = getelementptr i8, ptr %c_from, i64 %z
  call void %blas_at(i32 101, i32 %ta32, i32 %tb32, i32 %m32, i32 %n32, i32 %k32, {type} 1.0, ptr %a_at, i32 %lda32, ptr %b_at, i32 %ldb32, {type} 0.0, ptr %c_at, i32 %ldc32)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %last
  br i1 %more, label %item, label %end
end:
  ret void
}}
""",
    )


def gemm_kernel(product: Product, found: Any, leading: int) -> Kernel:
    """The kernel of a product, with its numbers; the pointers are A, B and C."""
    name, text = _kernel_text(found)
    code = Code()
    code.helpers["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
    kernel = Kernel(code, name, text)
    items = prod(product.batch)
    work = product.m * product.n * product.k
    parts, part_m, part_n, per_chunk = 1, 0, 0, 1
    if items == 1 or work > _PIECE * 4:
        wanted = max(1, min(_MOST_PIECES, work // _PIECE))
        if product.m >= product.n or product.m >= 256:
            part_m = _rounded(product.m, wanted, 16)
            parts = -(-product.m // part_m)
        else:
            part_n = _rounded(product.n, wanted, 48)
            parts = -(-product.n // part_n)
    else:
        per_chunk = max(1, min(items, _PIECE // max(work, 1), -(-items // 2)))
    extents = [1] * (_BATCH_DIMS - len(product.batch)) + list(product.batch)
    pad = [0] * (_BATCH_DIMS - len(product.batch))
    assert product.a is not None and product.b is not None
    kernel.numbers = [
        product.m, product.n, product.k, product.a.leading, product.b.leading, leading,
        112 if product.a.transposed else 111, 112 if product.b.transposed else 111,
        items, per_chunk, parts, part_m, part_n, extents[1], extents[2],
        *pad, *product.a_steps, *pad, *product.b_steps, product.m * product.n * found.itemsize,
        _address(found),
    ]  # fmt: skip
    kernel.chunks = -(-items // per_chunk) * parts
    return kernel


def _rounded(extent: int, pieces: int, step: int) -> int:
    return min(extent, -(-(-(-extent // pieces)) // step) * step)


@lowers("matmul", "linear")
def lower_product(lowering: Lowering, eqn: Equation) -> bool:
    a, b = eqn.args
    out = eqn.outs[0]
    product = product_of(eqn, a.layout, b.layout)
    if product is None:
        return False
    found = out.type.dtype
    place = lowering.home(out)
    leading = place.strides[-2] // found.itemsize if len(place.shape) > 1 else product.n
    kernel = gemm_kernel(product, found, max(leading, product.n))
    label = f"{eqn.op.name} {product.m}x{product.n}x{product.k}"
    work = product.m * product.n * product.k * prod(product.batch) // 8
    lowering.native(label, kernel, [a, b], [out], work)
    return True
