"""Linear recurrences and places of running extremes, along one dimension.

Each line of elements is taken from its first to its last; a chunk is some lines, so that results do
not depend on the number of threads. Recurrences of float32 are carried in float64.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.elementwise import KINDS, Kind
from evergrad.compiler.codegen.ir_builder import Vector, is_native
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.kernels.lanes import (
    LineBuilder,
    LineNumbers,
    inner_of,
    line_vector,
    with_lines,
)
from evergrad.compiler.native.jit import vector_bits
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
from evergrad.ops.rows.reduce.scan import CUMMAX_PLACES, CUMMIN_PLACES, RECUR


@cache
def _recur(vector: Vector) -> Kernel:
    """``y[i] = a[i] y[i - 1] + b[i]``, from ``y[0] = b[0]`` on."""
    ir = LineBuilder(vector, ("a", "b", "y"))
    type = ir.of("double")
    with ir.units() as unit:
        begin = ir.get("b", unit.start, unit)
        ir.put(begin, "y", unit.start, unit)
        state = [(type, ir.widened(begin))]
        with ir.carrying_loop(ir["extent"], state, first=1) as (i, carried):
            at = ir.add(unit.start, ir.mul(i, ir["stride"]))
            a, b = (ir.widened(ir.get(name, at, unit)) for name in ("a", "b"))
            product = ir.op(f"fmul {type} {a}, {carried.values[0]}")
            value = ir.op(f"fadd {type} {product}, {b}")
            ir.put(ir.narrowed(value), "y", at, unit)
            carried.after = [value]
    return ir.kernel("recur")


@cache
def _running_positions(vector: Vector, kind: Kind, is_largest: bool) -> Kernel:
    """Where the extreme so far last stood; a NaN is beyond all numbers."""
    ir = LineBuilder(vector, ("x", "out"))
    element, word = vector.element, "ge" if is_largest else "le"
    compare = f"fcmp o{word}" if kind.is_float else f"icmp {'s' if kind.signed else 'u'}{word}"
    type, masks = ir.of(element), ir.of("i1")
    with ir.units() as unit:
        state = [(type, ir.get("x", unit.start, unit)), (ir.of("i64"), ir.every("0", "i64"))]
        with ir.carrying_loop(ir["extent"], state) as (i, carried):
            best, position = carried.values
            at = ir.add(unit.start, ir.mul(i, ir["stride"]))
            x = ir.get("x", at, unit)
            is_new = ir.op(f"{compare} {type} {x}, {best}")
            if kind.is_float:
                is_new = ir.op(f"or {masks} {is_new}, {ir.op(f'fcmp uno {type} {x}, {x}')}")
            position = ir.pick(is_new, ir.every(i, "i64"), position, "i64")
            ir.put_index(position, "out", at, unit)
            carried.after = [ir.pick(is_new, x, best, element), position]
    return ir.kernel("running_positions")


@cache
def _row_positions(vector: Vector, kind: Kind, is_largest: bool) -> Kernel:
    """The same for contiguous lines, by registers. ``vector`` is of integers, whose order is that
    of the elements; of each register all prefixes are reduced at once, in log2(lanes) steps."""
    ir = KernelBuilder(vector, ("x", "out"), LineNumbers._fields)
    lanes, many, masks = vector.lanes, vector.type, vector.of("i1")
    places = vector.of("i32")
    compare = "sge" if is_largest else "sle"
    counted = f"<{', '.join(f'i32 {n}' for n in range(lanes))}>"

    def later(old: tuple[str, str], new: tuple[str, str]) -> tuple[str, str]:
        """The extreme of two in each lane: of equal ones the new."""
        is_new = ir.op(f"icmp {compare} {many} {new[0]}, {old[0]}")
        position = ir.op(f"select {masks} {is_new}, {places} {new[1]}, {places} {old[1]}")
        return ir.choose(is_new, new[0], old[0]), position

    def moved(pair: tuple[str, str], order: list[int]) -> tuple[str, str]:
        picked = f"{places} <{', '.join(f'i32 {n}' for n in order)}>"
        return (
            ir.op(f"shufflevector {many} {pair[0]}, {many} poison, {picked}"),
            ir.op(f"shufflevector {places} {pair[1]}, {places} poison, {picked}"),
        )

    first, last = ir.items("%chunk", ir["per_chunk"], ir["units"])
    with ir.loop(last, first=first) as line:
        start = ir.mul(line, ir["extent"])
        row = ir.at(ir["x"], start)
        target = ir.op(f"getelementptr i64, ptr {ir['out']}, i64 {start}")
        least = f"{1 << 8 * vector.size - 1}"
        begin = f"-{least}" if is_largest else f"{int(least) - 1}"
        state = [(many, ir.splat_constant(begin, vector.element)), (places, "zeroinitializer")]
        with ir.carrying_loop(ir["extent"], state, lanes) as (i, carried):
            mask = ir.first_lanes(ir.sub(ir["extent"], i))
            found = (
                _ordered(ir, ir.load_masked(ir.at(row, i), mask), kind, is_largest),
                ir.op(f"add {places} {ir.splat_index(i)}, {counted}"),
            )
            step = 1
            while step < lanes:
                # A lane without one before is combined with itself.
                order = [n - step if n >= step else n for n in range(lanes)]
                found = later(moved(found, order), found)
                step *= 2
            found = later((carried.values[0], carried.values[1]), found)
            wide = Vector("i64", lanes, 8)
            index = ir.op(f"zext {places} {found[1]} to {wide.type}")
            at = ir.op(f"getelementptr i64, ptr {target}, i64 {i}")
            ir.store_masked(index, at, mask, wide)
            carried.after = [*moved(found, [lanes - 1] * lanes)]
    return ir.kernel("running_positions_of_rows")


def _ordered(ir: KernelBuilder, bits: str, kind: Kind, is_largest: bool) -> str:
    """Integers in the order of the elements with these bits; NaN is beyond all numbers, and zeros
    are equal."""
    vector = ir.vector
    lowest = ir.splat_constant(f"-{1 << 8 * vector.size - 1}", vector.element)
    highest = ir.splat_constant(f"{(1 << 8 * vector.size - 1) - 1}", vector.element)
    if not kind.is_float:
        return bits if kind.signed else ir.lanewise("xor", bits, lowest)
    floats = vector.of(kind.compute)
    x = ir.op(f"bitcast {vector.type} {bits} to {floats}")
    is_number = ir.op(f"fcmp ord {floats} {x}, {x}")
    is_negative = ir.lanewise("icmp slt", bits, "zeroinitializer")
    # Of negative numbers the one with more bits is less; minus zero becomes zero.
    negated = ir.lanewise("sub", lowest, bits)
    key = ir.choose(is_negative, negated, bits)
    return ir.choose(is_number, key, highest if is_largest else lowest)


@lowers(RECUR)
def lower_recurrence(lowering: Lowering, eqn: Equation) -> bool:
    (out,) = eqn.outs
    found = out.type.dtype
    if not is_native(found) or not out.type.numel:
        return False
    vector = line_vector(KINDS[found].storage, found.itemsize, inner_of(eqn))
    kernel = with_lines(_recur(vector), eqn, vector.lanes)
    given = [contiguous(lowering, a) for a in eqn.args]
    lowering.add_kernel(eqn.op.name, kernel, given, [out], out.type.numel)
    return True


@lowers(CUMMAX_PLACES, CUMMIN_PLACES)
def lower_running_positions(lowering: Lowering, eqn: Equation) -> bool:
    x, (out,) = eqn.args[0], eqn.outs
    found = x.type.dtype
    kind = KINDS.get(found)
    if kind is None or kind.storage != kind.compute or not x.type.numel:
        return False
    size, extent = found.itemsize, x.type.shape[eqn.attrs["dim"]]
    row = Vector(f"i{8 * size}", vector_bits() // 8 // size, size)
    if inner_of(eqn) == 1 and size >= 4 and 2 * row.lanes <= extent < 1 << 31:
        kernel = with_lines(_row_positions(row, kind, eqn.op is CUMMAX_PLACES), eqn, 1)
        lowering.add_kernel(eqn.op.name, kernel, [contiguous(lowering, x)], [out], x.type.numel)
        return True
    # Positions of elements below 32 bits would take too many registers.
    inner = inner_of(eqn) if found.itemsize >= 4 else 1
    vector = line_vector(kind.storage, found.itemsize, inner)
    made = _running_positions(vector, kind, eqn.op is CUMMAX_PLACES)
    kernel = with_lines(made, eqn, vector.lanes)
    lowering.add_kernel(eqn.op.name, kernel, [contiguous(lowering, x)], [out], x.type.numel)
    return True
