"""Scans and positions of extremes along one dimension: each lane by itself, from its first element
to its last.

A tensor is viewed as ``(outer, extent, inner)``. A unit is some adjacent lanes of one outer index;
a chunk is some units, so that results depend on neither the number of threads nor the order of
chunks. Running sums and products of float32 are carried in float64, as in eager mode.
"""

from __future__ import annotations

from math import prod

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.native.jit import name_of
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core import dtypes
from evergrad.core.op import Op
from evergrad.core.trace import Equation
from evergrad.ops.rows.reduce.extrema import ARGMAX, ARGMIN
from evergrad.ops.rows.reduce.scan import CUMPROD, CUMSUM

_TYPES = {dtypes.float32: "float", dtypes.float64: "double", dtypes.int64: "i64"}
_WIDTH = 64  # lanes of a unit; the IR below has the same number
_CHUNK = 1 << 13  # elements of a chunk, at least

# The loops over units, lanes and elements. STEP computes %next of the state from the element %x,
# which is number %i of its lane, STORE writes what there is to write.
_TEXT = """define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {
entry:
  %source = load ptr, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  %out = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %extent = load i64, ptr %p2
  %p3 = getelementptr i64, ptr %args, i64 3
  %inner = load i64, ptr %p3
  %p4 = getelementptr i64, ptr %args, i64 4
  %units = load i64, ptr %p4
  %p5 = getelementptr i64, ptr %args, i64 5
  %per_chunk = load i64, ptr %p5
  %p6 = getelementptr i64, ptr %args, i64 6
  %blocks = load i64, ptr %p6
  %p7 = getelementptr i64, ptr %args, i64 7
  %first = load i64, ptr %p7
  %p8 = getelementptr i64, ptr %args, i64 8
  %stride = load i64, ptr %p8
  %low = mul i64 %chunk, %per_chunk
  %high0 = add i64 %low, %per_chunk
  %high = call i64 @llvm.smin.i64(i64 %high0, i64 %units)
  br label %unit
unit:
  %u = phi i64 [%low, %entry], [%u1, %unit_end]
  %o = udiv i64 %u, %blocks
  %block = urem i64 %u, %blocks
  %c0 = mul i64 %block, 64
  %c64 = add i64 %c0, 64
  %c1 = call i64 @llvm.smin.i64(i64 %c64, i64 %inner)
  %whole = mul i64 %o, %extent
  %start = mul i64 %whole, %inner
  %place0 = add i64 %start, %first
  br label %lane
lane:
  %c = phi i64 [%c0, %unit], [%cnext, %lane_end]
  %head = add i64 %place0, %c
  br label %element
element:
  %i = phi i64 [0, %lane], [%inext, %element]
  %at = phi i64 [%head, %lane], [%atnext, %element]
PHIS
  %xp = getelementptr TYPE, ptr %source, i64 %at
  %x = load TYPE, ptr %xp
STEP
  %inext = add i64 %i, 1
  %atnext = add i64 %at, %stride
  %more = icmp slt i64 %inext, %extent
  br i1 %more, label %element, label %lane_end
lane_end:
FINISH
  %cnext = add i64 %c, 1
  %cmore = icmp slt i64 %cnext, %c1
  br i1 %cmore, label %lane, label %unit_end
unit_end:
  %u1 = add i64 %u, 1
  %umore = icmp slt i64 %u1, %high
  br i1 %umore, label %unit, label %finish
finish:
  ret void
}
"""

_SCAN_STEP = """  %wide = WIDEN
  %state = COMBINE CARRIED %before, %wide
  %value = NARROW
  %op = getelementptr TYPE, ptr %out, i64 %at
  store TYPE %value, ptr %op"""

_EXTREME_STEP = """  %better0 = BETTER
  %begins = icmp eq i64 %i, 0
  %better = or i1 %better0, %begins
  %best = select i1 %better, TYPE %x, TYPE %best_before
  %place = select i1 %better, i64 %i, i64 %place_before"""

_EXTREME_FINISH = """  %row = mul i64 %o, %inner
  %cell = add i64 %row, %c
  %op = getelementptr i64, ptr %out, i64 %cell
  store i64 %place, ptr %op"""


def _scan_ir(type: str, word: str, identity: str) -> str:
    carried = "double" if type == "float" else type
    widen, narrow = f"bitcast {type} %x to {type}", f"bitcast {type} %state to {type}"
    if type == "float":
        widen, narrow = "fpext float %x to double", "fptrunc double %state to float"
    step = _SCAN_STEP.replace("WIDEN", widen).replace("NARROW", narrow)
    step = step.replace("COMBINE", word if type == "i64" else f"f{word}")
    step = step.replace("CARRIED", carried)
    phis = f"  %before = phi {carried} [{identity}, %lane], [%state, %element]"
    ir = _TEXT.replace("PHIS", phis).replace("STEP", step).replace("FINISH\n", "")
    return ir.replace("TYPE", type)


def _extreme_ir(type: str, word: str) -> str:
    """NaN is better than any number, and the first of equal elements than the others."""
    step, better = _EXTREME_STEP, f"icmp s{word} i64 %x, %best_before"
    if type != "i64":
        step = (
            f"  %is_number = fcmp ord {type} %best_before, %best_before\n"
            f"  %is_beyond = fcmp u{word} {type} %x, %best_before\n{step}"
        )
        better = "and i1 %is_beyond, %is_number"
    phis = (
        f"  %best_before = phi {type} [{'0' if type == 'i64' else '0.0'}, %lane], "
        "[%best, %element]\n  %place_before = phi i64 [0, %lane], [%place, %element]"
    )
    ir = _TEXT.replace("PHIS", phis).replace("STEP", step).replace("FINISH", _EXTREME_FINISH)
    return ir.replace("BETTER", better).replace("TYPE", type)


def _ir_of(row: Op, type: str) -> str:
    if row is CUMSUM:
        return _scan_ir(type, "add", "0" if type == "i64" else "0.0")
    if row is CUMPROD:
        return _scan_ir(type, "mul", "1" if type == "i64" else "1.0")
    return _extreme_ir(type, "gt" if row is ARGMAX else "lt")


def _kernel(eqn: Equation) -> Kernel:
    source = eqn.args[0].type
    dim = eqn.attrs["dim"]
    extent, inner = source.shape[dim], prod(source.shape[dim + 1 :])
    blocks = -(-inner // _WIDTH)
    units = prod(source.shape[:dim]) * blocks
    per_chunk = max(1, _CHUNK // (extent * min(inner, _WIDTH)))
    is_reverse = eqn.attrs.get("reverse", False)
    ir = _ir_of(eqn.op, _TYPES[source.dtype])
    name = name_of(ir, "lanes")
    helpers = {"llvm.smin.i64": "declare i64 @llvm.smin.i64(i64, i64)"}
    kernel = Kernel(name, ir.replace("@SELF", f"@{name}"), helpers)
    first, stride = ((extent - 1) * inner, -inner) if is_reverse else (0, inner)
    kernel.numbers = [extent, inner, units, per_chunk, blocks, first, stride]
    kernel.chunks = -(-units // per_chunk)
    return kernel


@lowers(CUMSUM, CUMPROD, ARGMAX, ARGMIN)
def lower_lanes(lowering: Lowering, eqn: Equation) -> bool:
    """A row of lanes on a contiguous tensor."""
    source = eqn.args[0]
    if source.type.dtype not in _TYPES or not source.type.numel:
        return False
    given = contiguous(lowering, source)
    lowering.add_kernel(eqn.op.name, _kernel(eqn), [given], [eqn.outs[0]], source.type.numel)
    return True
