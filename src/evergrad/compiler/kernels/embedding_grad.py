"""Scatter-add of rows by index: the gradient of an embedding table.

A chunk owns some columns and adds all rows to them in order, so that the result is deterministic
and needs no atomic additions.
"""

from __future__ import annotations

from math import prod

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.indexed import ADD, add_write, by_one_index
from evergrad.compiler.native.jit import name_of, vector_bits
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.trace import Equation
from evergrad.ops.rows.indexing.index import INDEX_SUM

_TYPES = {dtypes.float32: "float", dtypes.float64: "double"}
_COLUMNS = 64  # of a chunk; the IR below has the same number

_TEXT = """define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind ATTRIBUTES {
entry:
  %source = load ptr, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  %places = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %out = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %args, i64 3
  %status = load ptr, ptr %p3
  %p4 = getelementptr i64, ptr %args, i64 4
  %rows = load i64, ptr %p4
  %p5 = getelementptr i64, ptr %args, i64 5
  %columns = load i64, ptr %p5
  %p6 = getelementptr i64, ptr %args, i64 6
  %height = load i64, ptr %p6
  %first = mul i64 %chunk, 64
  %end0 = add i64 %first, 64
  %end = call i64 @llvm.smin.i64(i64 %end0, i64 %columns)
  br label %clear_row
clear_row:
  %z = phi i64 [0, %entry], [%z1, %cleared]
  %zstart = mul i64 %z, %columns
  br label %clear
clear:
  %y = phi i64 [%first, %clear_row], [%y1, %clear]
  %zat = add i64 %zstart, %y
  %zp = getelementptr TYPE, ptr %out, i64 %zat
  store TYPE 0.0, ptr %zp
  %y1 = add i64 %y, 1
  %ymore = icmp slt i64 %y1, %end
  br i1 %ymore, label %clear, label %cleared
cleared:
  %z1 = add i64 %z, 1
  %zmore = icmp slt i64 %z1, %height
  br i1 %zmore, label %clear_row, label %row
row:
  %r = phi i64 [0, %cleared], [%r1, %done]
  %kp = getelementptr i64, ptr %places, i64 %r
  %k0 = load i64, ptr %kp
  %low = icmp slt i64 %k0, 0
  %raised = add i64 %k0, %height
  %k = select i1 %low, i64 %raised, i64 %k0
  %inside = icmp ult i64 %k, %height
  br i1 %inside, label %take, label %bad
bad:
  store i64 1, ptr %status
  br label %done
take:
  %from = mul i64 %r, %columns
  %to = mul i64 %k, %columns
  br label %add
add:
  %c = phi i64 [%first, %take], [%c1, %add]
  %fat = add i64 %from, %c
  %tat = add i64 %to, %c
  %fp = getelementptr TYPE, ptr %source, i64 %fat
  %tp = getelementptr TYPE, ptr %out, i64 %tat
  %f = load TYPE, ptr %fp, !llvm.access.group !M0
  %t = load TYPE, ptr %tp, !llvm.access.group !M0
  %s = fadd TYPE %f, %t
  store TYPE %s, ptr %tp, !llvm.access.group !M0
  %c1 = add i64 %c, 1
  %cmore = icmp slt i64 %c1, %end
  br i1 %cmore, label %add, label %done, !llvm.loop !M1
done:
  %r1 = add i64 %r, 1
  %rmore = icmp slt i64 %r1, %rows
  br i1 %rmore, label %row, label %finish
finish:
  ret void
}
!M0 = distinct !{}
!M1 = distinct !{!M1, !M2}
!M2 = !{!"llvm.loop.parallel_accesses", !M0}
"""


def row_sum_fits(eqn: Equation) -> bool:
    """Whether an ``index_sum`` adds whole contiguous rows, by one index."""
    source, *indices = eqn.args
    return (
        len(indices) == 1
        and eqn.attrs["start"] == 0
        and source.type.dtype in _TYPES
        and indices[0].type.dtype is dtypes.int64
        and source.type.numel > 0
    )


def row_sum_kernel(eqn: Equation) -> Kernel:
    source, places = eqn.args
    rows = places.type.numel
    columns = prod(source.type.shape[len(places.type.shape) :])
    helpers = {"llvm.smin.i64": "declare i64 @llvm.smin.i64(i64, i64)"}
    ir = _TEXT.replace("TYPE", _TYPES[source.type.dtype])
    ir = ir.replace("ATTRIBUTES", f'"prefer-vector-width"="{vector_bits()}"')
    name = name_of(ir, "row_sums")
    kernel = Kernel(name, ir.replace("@SELF", f"@{name}"), helpers)
    kernel.numbers = [rows, columns, eqn.attrs["extents"][0]]
    kernel.chunks = -(-columns // _COLUMNS)
    return kernel


@lowers(INDEX_SUM)
def lower_row_sum(lowering: Lowering, eqn: Equation) -> bool:
    source, *indices = eqn.args
    if row_sum_fits(eqn):
        given = [contiguous(lowering, a) for a in eqn.args]
        kernel = row_sum_kernel(eqn)
        lowering.add_kernel(eqn.op.name, kernel, given, [eqn.outs[0], None], source.type.numel)
        return True
    if len(indices) != 1:
        return False
    shape, start = eqn.outs[0].type.shape, eqn.attrs["start"]
    extents = by_one_index(shape, start, indices[0].type.numel)
    return add_write(lowering, eqn, None, indices[0], source, ADD, extents, wrap=True)
