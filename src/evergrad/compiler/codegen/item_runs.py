"""The loop that combines two lists of arrays run by run.

A row of the table has the place of a run in the result, those in the operands (-1: there are zeros
instead), and its number of elements.
"""

from __future__ import annotations

from evergrad.compiler.codegen.ir_builder import IRBuilder

ROW = 4
_INSTRUCTIONS = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


def combine_runs(
    ir: IRBuilder, name: str, pointers: tuple[str, str, str], table: str, rows: tuple[str, str]
) -> None:
    """Write the runs from the first to the last one of ``rows``; ``pointers`` are those of the
    result and of both operands."""
    first, last = rows
    with ir.loop(last, first=first) as row:
        address = ir.op(f"getelementptr i64, ptr {table}, i64 {ir.mul(row, ROW)}")
        out, *places, count = (_number(ir, address, n) for n in range(ROW))
        stored = [ir.op(f"icmp sge i64 {place}, 0") for place in places]
        target = ir.at(pointers[0], out)
        for has_a in (True, False):
            for has_b in (True, False):
                with ir.when(_both(ir, stored, (has_a, has_b))):
                    sources = [
                        ir.at(pointer, place) if has else None
                        for pointer, place, has in zip(
                            pointers[1:], places, (has_a, has_b), strict=True
                        )
                    ]
                    _combine(ir, _INSTRUCTIONS[name], target, sources, count)


def _number(ir: IRBuilder, address: str, n: int) -> str:
    return ir.op(f"load i64, ptr {ir.op(f'getelementptr i64, ptr {address}, i64 {n}')}")


def _both(ir: IRBuilder, conditions: list[str], wanted: tuple[bool, bool]) -> str:
    """Whether both conditions are as wanted."""
    pairs = zip(conditions, wanted, strict=True)
    left, right = (c if is_wanted else ir.op(f"xor i1 {c}, true") for c, is_wanted in pairs)
    return ir.op(f"and i1 {left}, {right}")


def _combine(
    ir: IRBuilder, instruction: str, target: str, sources: list[str | None], count: str
) -> None:
    """One run: whole registers, then the rest under a mask."""
    lanes = ir.vector.lanes
    whole = ir.op(f"and i64 {count}, {-lanes}")
    with ir.loop(whole, lanes) as k:
        values = [
            "zeroinitializer" if source is None else ir.load_vector(ir.at(source, k))
            for source in sources
        ]
        ir.store_vector(_joined(ir, instruction, values), ir.at(target, k))
    with ir.when(ir.op(f"icmp ne i64 {whole}, {count}")):
        mask = ir.first_lanes(ir.sub(count, whole))
        values = [
            "zeroinitializer" if source is None else ir.load_masked(ir.at(source, whole), mask)
            for source in sources
        ]
        ir.store_masked(_joined(ir, instruction, values), ir.at(target, whole), mask)


def _joined(ir: IRBuilder, instruction: str, values: list[str]) -> str:
    left, right = values
    return ir.op(f"{instruction} {ir.vector.type} {left}, {right}")
