"""Matrix products by OpenBLAS, called by address with one thread for each chunk."""

from __future__ import annotations

import ctypes
from functools import cache
from math import ceil
from typing import TYPE_CHECKING

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.problem import Batch, Product
from evergrad.compiler.kernels.gemm.tile_epilogue import EPILOGUE, NO_EPILOGUE
from evergrad.core import dtypes, openblas

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype


NAMES = {
    dtypes.float32: ("cblas_sgemm", "float"),
    dtypes.float64: ("cblas_dgemm", "double"),
}
# A chunk is worth claiming if it has about this many multiplications.
_CHUNK_WORK = 1 << 21
_MOST_CHUNKS = 16


def address(found: dtype) -> int:
    """The address of the product for an element type."""
    symbol, _ = NAMES[found]
    return int(ctypes.cast(openblas.function(symbol), ctypes.c_void_p).value or 0)


_ARGUMENTS = (
    "a", "b", "c", "m", "n", "k", "lda", "ldb", "ldc", "ta", "tb", "items", "per_chunk", "parts",
    "part_m", "part_n", "blas", *Batch._fields, *EPILOGUE,
)  # fmt: skip


@cache
def _kernel_ir(found: dtype) -> tuple[str, str]:
    """The kernel for an element type. A chunk is some whole products, or a part of one."""
    _, type = NAMES[found]
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
  %i = phi i64 [%first, %entry], [%i1, %next]
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
  %z = mul i64 %i, %c_stride
  %a_at = getelementptr i8, ptr %a_from, i64 %x
  %b_at = getelementptr i8, ptr %b_from, i64 %y
  %c_at = getelementptr i8, ptr %c_from, i64 %z
  call void %blas_at(i32 101, i32 %ta32, i32 %tb32, i32 %m32, i32 %n32, i32 %k32, {type} 1.0,
    ptr %a_at, i32 %lda32, ptr %b_at, i32 %ldb32, {type} 0.0, ptr %c_at, i32 %ldc32)
  %is_more = icmp ne i64 %epilogue, 0
  br i1 %is_more, label %finish, label %next
finish:
  %rows_before = mul i64 %i, %m
  %row = add i64 %rows_before, %m0
  %function = inttoptr i64 %epilogue to ptr
  %arguments = inttoptr i64 %epilogue_arguments to ptr
  %place0 = inttoptr i64 %epilogue_tile to ptr
  %place1 = getelementptr i64, ptr %place0, i64 1
  %place2 = getelementptr i64, ptr %place0, i64 2
  %place3 = getelementptr i64, ptr %place0, i64 3
  store i64 %row, ptr %place0
  store i64 %mm, ptr %place1
  store i64 %n0, ptr %place2
  store i64 %nn, ptr %place3
  call void %function(ptr %arguments, i64 0, ptr null)
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %last
  br i1 %more, label %item, label %end
end:
  ret void
}}
""",
    )


def blas_kernel(product: Product, found: dtype, leading: int) -> Kernel:
    """The kernel of a product, with its numbers; the pointers are A, B and C."""
    name, ir = _kernel_ir(found)
    helpers = {"llvm.smin.i64": "declare i64 @llvm.smin.i64(i64, i64)"}
    kernel = Kernel(name, ir, helpers)
    items = product.items
    parts, part_m, part_n, per_chunk = 1, 0, 0, 1
    if items == 1 or product.work > _CHUNK_WORK * 4:
        wanted = max(1, min(_MOST_CHUNKS, product.work // _CHUNK_WORK))
        if product.m >= product.n or product.m >= 256:
            part_m = _rounded(product.m, wanted, 16)
            parts = -(-product.m // part_m)
        else:
            part_n = _rounded(product.n, wanted, 48)
            parts = -(-product.n // part_n)
    else:
        per_chunk = max(1, min(items, _CHUNK_WORK // max(product.work, 1), -(-items // 2)))
    assert product.a is not None and product.b is not None
    kernel.numbers = [
        product.m, product.n, product.k, product.a.leading, product.b.leading, leading,
        112 if product.a.transposed else 111, 112 if product.b.transposed else 111,
        items, per_chunk, parts, part_m, part_n, address(found),
        *product.batch_numbers(found.itemsize), *NO_EPILOGUE,
    ]  # fmt: skip
    kernel.products = {_ARGUMENTS.index("blas") - 3: found.name}
    kernel.chunks = -(-items // per_chunk) * parts
    return kernel


def _rounded(extent: int, chunks: int, step: int) -> int:
    """The extent of a chunk, a multiple of ``step``."""
    share = ceil(extent / chunks)
    return min(extent, ceil(share / step) * step)
