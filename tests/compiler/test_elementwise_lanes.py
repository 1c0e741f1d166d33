"""Registers of elements of every elementwise row: the bits of single elements."""

from __future__ import annotations

import ctypes
import inspect
from typing import Any

import numpy as np
import pytest

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.elementwise_lanes import decoded, emit_lanes, encoded, has_lanes
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.native import jit
from evergrad.core import dtypes
from evergrad.core.op import TABLE, Op, Specialization
from evergrad.core.shapes import tensor_type

pytestmark = pytest.mark.skipif(not jit.can_jit(), reason="the system lets no process make code")

_ROWS = [op for op in TABLE.values() if has_lanes(op)]
_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -1e30, 1e10, 7.0)
_COUNT = 16 * 12
_DTYPES = (
    dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16, dtypes.int32, dtypes.int64,
    dtypes.uint8, dtypes.bool_,
)  # fmt: skip


def _specialization(op: Op, found: Any) -> Specialization | None:
    """A row for operands of this type, if it is emitted for them."""
    count = len(inspect.signature(op.emit.function).parameters) - 1
    types = [tensor_type((_COUNT,), found)] * count
    if op.name == "where":
        types[0] = tensor_type((_COUNT,), dtypes.bool_)
    attrs = {"dtype": dtypes.float32 if found is not dtypes.float32 else dtypes.int32}
    try:
        made = op._specialize(tuple(types), attrs if op.name == "cast" else {})
    except (TypeError, RuntimeError, ValueError):
        return None
    known = [t.dtype for t in (*made.operands, *made.out_types)]
    if made.casts is not None or any(t not in KINDS for t in known):
        return None
    return made if elementwise.supports(op, made.operands, made.out_types) else None


def _given(found: Any, seed: int) -> Any:
    source = np.random.default_rng([3, seed])
    if found is dtypes.bool_:
        return source.integers(0, 2, _COUNT).astype(bool)
    if not KINDS[found].is_float:
        return source.integers(1, 30, _COUNT).astype(found.np)
    numbers = source.standard_normal(_COUNT) * source.choice([0.3, 3.0, 300.0], _COUNT)
    special = source.permutation(np.resize(_SPECIAL, _COUNT // 2))
    numbers[source.permutation(_COUNT)[: len(special)]] = special
    with np.errstate(over="ignore"):
        return numbers.astype(found.np)


def _kernel(rows: list[Specialization], lanes: int) -> Any:
    """A kernel that computes all rows, by registers of so many lanes or one by one (0)."""
    pointers = [f"p{n}.{i}" for n, made in enumerate(rows) for i in range(len(made.operands) + 1)]
    ir = KernelBuilder(Vector("float", lanes or 16, 4), pointers, ())
    for n, made in enumerate(rows):
        types = [t.dtype for t in made.operands]
        out = made.out_types[0].dtype
        with ir.loop(_COUNT, lanes or 1) as index:
            places = [
                ir.op(f"getelementptr {KINDS[t].storage}, ptr {ir[f'p{n}.{i}']}, i64 {index}")
                for i, t in enumerate((*types, out))
            ]
            if not lanes:
                args = [elementwise.load(ir, t, p) for t, p in zip(types, places, strict=False)]
                value = elementwise.emit_op(ir, made.op, types[-1], out, made.attrs, args)
                elementwise.store(ir, out, value, places[-1])
                continue
            stored = [Vector(KINDS[t].storage, lanes, KINDS[t].bits // 8) for t in (*types, out)]
            args = [
                decoded(ir, lanes, t, ir.load_vector(place, vector))
                for t, place, vector in zip(types, places, stored, strict=False)
            ]
            value = emit_lanes(ir, lanes, made.op, types, out, made.attrs, args)
            value = encoded(ir, lanes, out, value)
            ir.do(f"store {stored[-1].type} {value}, ptr {places[-1]}, align {stored[-1].size}")
    return ir.kernel("lanes")


def _run(kernel: Any, arrays: list[Any]) -> None:
    address = jit.addresses([kernel])[kernel.name]
    function = jit.function_of(address, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    block = np.array([a.ctypes.data for a in arrays], np.int64)
    function(block.ctypes.data, 0, np.zeros(64, np.int64).ctypes.data)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("found", _DTYPES, ids=str)
def test_registers_have_the_bits_of_elements(found: Any, lanes: int) -> None:
    rows = [made for op in _ROWS if (made := _specialization(op, found)) is not None]
    assert len(rows) > 20
    results: list[list[Any]] = []
    for count in (0, lanes):
        arrays, outs = [], []
        for n, made in enumerate(rows):
            arrays += [_given(t.dtype, 10 * n + i) for i, t in enumerate(made.operands)]
            outs.append(np.zeros(_COUNT, made.out_types[0].dtype.np))
            arrays.append(outs[-1])
        _run(_kernel(rows, count), arrays)
        results.append(outs)
    for made, one, many in zip(rows, *results, strict=True):
        if KINDS[made.out_types[0].dtype].is_float:
            one, many = (np.asarray(values, np.float64) for values in (one, many))
            is_number = ~np.isnan(one)
            signs = [np.signbit(values[is_number]) for values in (one, many)]
            np.testing.assert_array_equal(*signs, made.op.name)
        np.testing.assert_array_equal(many, one, made.op.name)


def test_every_row_has_lanes_unless_elements_depend_on_their_position() -> None:
    """But for those that no element is emitted of."""
    for op in TABLE.values():
        if op.emit.function is not None and op.family == "elementwise":
            assert has_lanes(op) or op.emit.numbered, op.name
