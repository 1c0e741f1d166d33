"""Linear recurrences and places of running extremes, along one dimension.

Each lane is taken by itself from its first element to its last; a chunk is some lanes, so that
results do not depend on the number of threads. Recurrences of float32 are carried in float64.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import KernelBuilder, Vector, is_native, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.dtypes import dtype
from evergrad.core.trace import Equation
from evergrad.ops.rows.reduce.scan import CUMMAX_PLACES, CUMMIN_PLACES, RECUR

_CHUNK = 1 << 13  # the elements of a chunk, at least


class _Numbers(NamedTuple):
    """A tensor is ``(outer, extent, inner)``; the elements of a lane are a stride apart."""

    extent: int
    inner: int
    lanes: int
    per_chunk: int
    first: int  # element of a lane, from its start
    stride: int


def _lane_start(ir: KernelBuilder, lane: str) -> str:
    """The first element of a lane."""
    outer, column = ir.split(lane, ir["inner"])
    return ir.add(ir.mul(outer, ir["extent"], ir["inner"]), column, ir["first"])


@cache
def _recur_ir(vector: Vector) -> Kernel:
    """``y[i] = a[i] y[i - 1] + b[i]``, from ``y[0] = b[0]`` on."""
    ir = KernelBuilder(vector, ("a", "b", "y"), _Numbers._fields)
    is_single = vector.element == "float"

    def wide(value: str) -> str:
        return ir.op(f"fpext float {value} to double") if is_single else value

    def narrow(value: str) -> str:
        return ir.op(f"fptrunc double {value} to float") if is_single else value

    first, last = ir.items("%chunk", ir["per_chunk"], ir["lanes"])
    with ir.loop(last, first=first) as lane:
        start = _lane_start(ir, lane)
        begin = ir.load(ir.at(ir["b"], start))
        ir.store(begin, ir.at(ir["y"], start))
        with ir.carrying_loop(ir["extent"], [("double", wide(begin))], first=1) as (i, carried):
            at = ir.add(start, ir.mul(i, ir["stride"]))
            a, b = (wide(ir.load(ir.at(ir[name], at))) for name in ("a", "b"))
            state = ir.op(f"fadd double {ir.op(f'fmul double {a}, {carried.values[0]}')}, {b}")
            ir.store(narrow(state), ir.at(ir["y"], at))
            carried.after = [state]
    return ir.kernel("recur")


@cache
def _places_ir(found: dtype, is_largest: bool) -> Kernel:
    """Where the extreme so far last stood; a NaN is beyond all numbers."""
    kind = KINDS[found]
    ir = KernelBuilder(Vector(kind.storage, 1, found.itemsize), ("x", "out"), _Numbers._fields)
    element, word = kind.storage, "ge" if is_largest else "le"
    compare = f"fcmp o{word}" if kind.is_float else f"icmp {'s' if kind.signed else 'u'}{word}"
    first, last = ir.items("%chunk", ir["per_chunk"], ir["lanes"])
    with ir.loop(last, first=first) as lane:
        start = _lane_start(ir, lane)
        state = [(element, ir.load(ir.at(ir["x"], start))), ("i64", "0")]
        with ir.carrying_loop(ir["extent"], state) as (i, carried):
            best, place = carried.values
            at = ir.add(start, ir.mul(i, ir["stride"]))
            x = ir.load(ir.at(ir["x"], at))
            is_new = ir.op(f"{compare} {element} {x}, {best}")
            if kind.is_float:
                is_new = ir.op(f"or i1 {is_new}, {ir.op(f'fcmp uno {element} {x}, {x}')}")
            best = ir.op(f"select i1 {is_new}, {element} {x}, {element} {best}")
            place = ir.op(f"select i1 {is_new}, i64 {i}, i64 {place}")
            to = ir.op(f"getelementptr i64, ptr {ir['out']}, i64 {at}")
            ir.do(f"store i64 {place}, ptr {to}")
            carried.after = [best, place]
    return ir.kernel("running_places")


def _with_lanes(made: Kernel, eqn: Equation) -> Kernel:
    shape, dim = eqn.args[0].type.shape, eqn.attrs["dim"]
    extent, inner = shape[dim], prod(shape[dim + 1 :])
    lanes = prod(shape) // extent
    per_chunk = max(1, _CHUNK // extent)
    is_reverse = eqn.attrs.get("reverse", False)
    first, stride = ((extent - 1) * inner, -inner) if is_reverse else (0, inner)
    numbers = _Numbers(extent, inner, lanes, per_chunk, first, stride)
    return with_numbers(made, numbers, (), -(-lanes // per_chunk))


@lowers(RECUR)
def lower_recurrence(lowering: Lowering, eqn: Equation) -> bool:
    (out,) = eqn.outs
    found = out.type.dtype
    if not is_native(found) or not out.type.numel:
        return False
    kernel = _with_lanes(_recur_ir(Vector(KINDS[found].storage, 1, found.itemsize)), eqn)
    given = [contiguous(lowering, a) for a in eqn.args]
    lowering.add_kernel(eqn.op.name, kernel, given, [out], out.type.numel)
    return True


@lowers(CUMMAX_PLACES, CUMMIN_PLACES)
def lower_running_places(lowering: Lowering, eqn: Equation) -> bool:
    x, (out,) = eqn.args[0], eqn.outs
    kind = KINDS.get(x.type.dtype)
    if kind is None or kind.storage != kind.compute or not x.type.numel:
        return False
    kernel = _with_lanes(_places_ir(x.type.dtype, eqn.op is CUMMAX_PLACES), eqn)
    lowering.add_kernel(eqn.op.name, kernel, [contiguous(lowering, x)], [out], x.type.numel)
    return True
