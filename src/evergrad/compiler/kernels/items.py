"""Lists of arrays of different shapes: two that are combined run by run, and the sums of one.

A chunk owns a part of the result; runs that reach beyond it are divided. A sum is made of blocks
by registers, and of these in double precision, so that it depends on neither the other items nor
the number of threads.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from evergrad.compiler.codegen.ir_builder import Vector, is_native, vector_for
from evergrad.compiler.codegen.item_runs import combine_runs
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.tensor import Array
from evergrad.core.trace import Equation
from evergrad.ops.rows.movement.item_layouts import offsets, pair_runs
from evergrad.ops.rows.movement.items import ADD_ITEMS, COMBINATIONS, MUL_ITEMS, SUB_ITEMS
from evergrad.ops.rows.reduce.item_sums import SUM_ITEMS

# The elements of a chunk, and of a block of a sum.
_CHUNK = 1 << 16
_BLOCK = 1 << 12
# Registers in which a block is summed.
_SUMS = 4


@cache
def _combination(vector: Vector, name: str) -> Kernel:
    """The kernel with the arguments a, b and out. The numbers are the first row of each chunk and
    the end, then the rows."""
    ir = KernelBuilder(vector, ("a", "b", "out"), ("chunks",))
    starts = ir.table()
    rows = ir.number(starts, "%chunk"), ir.number(starts, ir.add("%chunk", 1))
    table = ir.table(ir.add(ir["chunks"], 1))
    combine_runs(ir, name, (ir["out"], ir["a"], ir["b"]), table, rows)
    return ir.kernel(f"{name}_items")


def divided(runs: Array, chunk: int) -> tuple[Array, Array]:
    """The first run of each chunk of the result and their number, and the runs, cut where chunks
    end."""
    ends = runs[:, 0] + runs[:, 3]
    borders = np.arange(chunk, int(ends[-1]), chunk)
    cut = np.searchsorted(runs[:, 0], borders, "right") - 1
    starts = np.concatenate([runs[:, 0], borders])
    number = np.concatenate([np.arange(len(runs)), cut])
    starts, first = np.unique(starts, return_index=True)
    number = number[first]
    shift = starts - runs[number, 0]
    places = np.where(runs[number, 1:3] < 0, -1, runs[number, 1:3] + shift[:, None])
    counts = np.diff(starts, append=ends[-1])
    made = np.column_stack([starts, places, counts])
    firsts = np.searchsorted(starts, np.concatenate([[0], borders]))
    return np.append(firsts, len(made)), made


@lowers(ADD_ITEMS, SUB_ITEMS, MUL_ITEMS)
def lower_item_pairs(lowering: Lowering, eqn: Equation) -> bool:
    a, b = eqn.args
    out = eqn.outs[0].type
    same = a.type.dtype is b.type.dtype is out.dtype and is_native(out.dtype)
    if not same or len(out.shape) != 1 or 0 in (a.type.numel, b.type.numel, out.numel):
        return False
    runs = pair_runs(*eqn.attrs["inner"], eqn.attrs["outer"])
    firsts, rows = divided(runs, _CHUNK)
    chunks = len(firsts) - 1
    made = _combination(vector_for(out.dtype), COMBINATIONS[eqn.op])
    tables = [*firsts.tolist(), *rows.reshape(-1).tolist()]
    kernel = with_numbers(made, [chunks], tables, chunks)
    given = [contiguous(lowering, x) for x in (a, b)]
    lowering.add_kernel(eqn.op.name, kernel, given, [eqn.outs[0]], out.numel)
    return True


@cache
def _sums(vector: Vector) -> Kernel:
    """The kernel with the arguments x and out. The numbers are the first item of each chunk and the
    end, then where each item begins, and the end."""
    ir = KernelBuilder(vector, ("x", "out"), ("chunks",))
    starts = ir.table()
    first, last = ir.number(starts, "%chunk"), ir.number(starts, ir.add("%chunk", 1))
    begins = ir.table(ir.add(ir["chunks"], 1))
    with ir.loop(last, first=first) as item:
        begin = ir.number(begins, item)
        count = ir.sub(ir.number(begins, ir.add(item, 1)), begin)
        source = ir.at(ir["x"], begin)
        with ir.carrying_loop(count, [("double", "0.0")], _BLOCK) as (start, total):
            block = ir.at(source, start)
            part = _block_sum(ir, block, ir.least(ir.sub(count, start), _BLOCK))
            total.after = [ir.op(f"fadd double {total.values[0]}, {part}")]
        found = total.after[0]
        if vector.element == "float":
            found = ir.op(f"fptrunc double {found} to float")
        ir.store(found, ir.at(ir["out"], item))
    return ir.kernel("sum_items")


def _block_sum(ir: KernelBuilder, source: str, count: str) -> str:
    """The sum of some elements as a double."""
    many, lanes = ir.vector.type, ir.vector.lanes
    whole = ir.op(f"and i64 {count}, {-_SUMS * lanes}")
    start = [(many, "zeroinitializer")] * _SUMS
    with ir.carrying_loop(whole, start, _SUMS * lanes) as (k, sums):
        loaded = [ir.load_vector(ir.at(source, k, n * lanes)) for n in range(_SUMS)]
        sums.after = [ir.plus(a, b) for a, b in zip(sums.values, loaded, strict=True)]
    left, right = (ir.plus(*sums.after[n : n + 2]) for n in (0, 2))
    with ir.carrying_loop(count, [(many, ir.plus(left, right))], lanes, whole) as (k, rest):
        mask = ir.first_lanes(ir.sub(count, k))
        rest.after = [ir.plus(rest.values[0], ir.load_masked(ir.at(source, k), mask))]
    found = ir.sum_of_lanes(rest.after[0])
    return ir.op(f"fpext float {found} to double") if ir.vector.element == "float" else found


@lowers(SUM_ITEMS)
def lower_item_sums(lowering: Lowering, eqn: Equation) -> bool:
    (x,) = eqn.args
    if not is_native(x.type.dtype) or len(x.type.shape) != 1 or not x.type.numel:
        return False
    begins = np.array(offsets(eqn.attrs["layout"]))
    borders = np.arange(0, begins[-1], _CHUNK)
    firsts = np.unique(np.append(np.searchsorted(begins[:-1], borders), len(begins) - 1))
    chunks = len(firsts) - 1
    tables = [*firsts.tolist(), *begins.tolist()]
    kernel = with_numbers(_sums(vector_for(x.type.dtype)), [chunks], tables, chunks)
    lowering.add_kernel(eqn.op.name, kernel, [contiguous(lowering, x)], eqn.outs, x.type.numel)
    return True
