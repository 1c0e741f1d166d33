"""Kernels that write whole rows by number into a table that is already there.

A chunk owns some columns and takes the rows in order, so that rows which repeat are added, or
overwritten, in the order of the source on any number of threads. The numbers are checked by a
kernel of its own, which runs before anything is written.
"""

from __future__ import annotations

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native.jit import name_of, vector_bits

COLUMNS = 64  # of a chunk; the IR below has the same number

_CHECK = """define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {
entry:
  %places = load ptr, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  %status = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %rows = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %args, i64 3
  %height = load i64, ptr %p3
  %p4 = getelementptr i64, ptr %args, i64 4
  %least = load i64, ptr %p4
  br label %row
row:
  %r = phi i64 [0, %entry], [%r1, %next]
  %kp = getelementptr i64, ptr %places, i64 %r
  %k = load i64, ptr %kp
  %low = icmp sge i64 %k, %least
  %high = icmp slt i64 %k, %height
  %inside = and i1 %low, %high
  br i1 %inside, label %next, label %bad
bad:
  store i64 1, ptr %status
  br label %next
next:
  %r1 = add i64 %r, 1
  %more = icmp slt i64 %r1, %rows
  br i1 %more, label %row, label %finish
finish:
  ret void
}
"""

_WRITE = """define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind ATTRIBUTES {
entry:
  %source = load ptr, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  %places = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %out = load ptr, ptr %p2
  %p3 = getelementptr i64, ptr %args, i64 3
  %rows = load i64, ptr %p3
  %p4 = getelementptr i64, ptr %args, i64 4
  %columns = load i64, ptr %p4
  %p5 = getelementptr i64, ptr %args, i64 5
  %height = load i64, ptr %p5
  %first = mul i64 %chunk, 64
  %end0 = add i64 %first, 64
  %end = call i64 @llvm.smin.i64(i64 %end0, i64 %columns)
  br label %row
row:
  %r = phi i64 [0, %entry], [%r1, %done]
  %kp = getelementptr i64, ptr %places, i64 %r
  %k0 = load i64, ptr %kp
  %low = icmp slt i64 %k0, 0
  %raised = add i64 %k0, %height
  %k = select i1 %low, i64 %raised, i64 %k0
  %from = mul i64 %r, %columns
  %to = mul i64 %k, %columns
  br label %element
element:
  %c = phi i64 [%first, %row], [%c1, %element]
  %fat = add i64 %from, %c
  %tat = add i64 %to, %c
  %fp = getelementptr TYPE, ptr %source, i64 %fat
  %tp = getelementptr TYPE, ptr %out, i64 %tat
  %f = load TYPE, ptr %fp, !llvm.access.group !M0
  NEW
  store TYPE %s, ptr %tp, !llvm.access.group !M0
  %c1 = add i64 %c, 1
  %cmore = icmp slt i64 %c1, %end
  br i1 %cmore, label %element, label %done, !llvm.loop !M1
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
_SUM = "%t = load TYPE, ptr %tp, !llvm.access.group !M0\n  %s = fadd TYPE %t, %f"
_COPY = "%s = select i1 true, TYPE %f, TYPE %f"


def check_rows(rows: int, height: int, wrap: bool) -> Kernel:
    """Whether all numbers of rows are in range: (numbers, status word)."""
    name = name_of(_CHECK, "check_rows")
    kernel = Kernel(name, _CHECK.replace("@SELF", f"@{name}"))
    kernel.numbers = [rows, height, -height if wrap else 0]
    return kernel


def write_rows(type_name: str, is_sum: bool, rows: int, columns: int, height: int) -> Kernel:
    """Add rows to, or copy them over, those with the given numbers: (source, numbers, table)."""
    ir = _WRITE.replace("NEW", _SUM if is_sum else _COPY).replace("TYPE", type_name)
    ir = ir.replace("ATTRIBUTES", f'"prefer-vector-width"="{vector_bits()}"')
    name = name_of(ir, "add_rows" if is_sum else "copy_rows")
    helpers = {"llvm.smin.i64": "declare i64 @llvm.smin.i64(i64, i64)"}
    kernel = Kernel(name, ir.replace("@SELF", f"@{name}"), helpers)
    kernel.numbers = [rows, columns, height]
    kernel.chunks = -(-columns // COLUMNS)
    return kernel
