"""Epilogues of convolutions: the op, and how kernels apply them before they store.

:mod:`evergrad.compiler.passes.conv_epilogue` decides which equations join a convolution. Rows of a
tile are channels, columns pixels: an operand has one value per channel, one in all, or one per
element of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from evergrad.compiler.codegen.epilogue import Along, Epilogue
from evergrad.compiler.codegen.ir_builder import is_native
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import lowered
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Equation
from evergrad.core.types import Array
from evergrad.ops.rows.conv import CONV
from evergrad.ops.rows.pool.geometry import Windows

# -- the op -------------------------------------------------------------------------------------


def _type(
    x: TensorType,
    w: TensorType,
    *others: TensorType,
    windows: Windows,
    groups: int,
    epilogue: Epilogue,
) -> TensorType:
    found: TensorType = CONV.type(x, w, windows=windows, groups=groups)
    return found


def _eval(
    x: Array, w: Array, *others: Array, windows: Windows, groups: int, epilogue: Epilogue
) -> Array:
    y = CONV.eval(x, w, windows=windows, groups=groups)
    return epilogue.evaluate(y, others)


CONV_EPILOGUE = Op(
    "conv_epilogue", family="custom", type=_type, eval=_eval, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=None, emit=lowered("kernels.conv"), doc="A convolution with an elementwise epilogue.",
)  # fmt: skip


def epilogue_of(eqn: Equation) -> Epilogue | None:
    """The epilogue of a convolution, if it has one."""
    found: Epilogue | None = eqn.attrs.get("epilogue")
    return found


def fits(eqn: Equation) -> bool:
    """Whether there are kernels for a convolution."""
    out = eqn.outs[0].type
    types = [a.type for a in eqn.args[:2]]
    return (
        is_native(out.dtype)
        and all(t.dtype is out.dtype for t in types)
        and all(0 < t.numel < 1 << 31 for t in (*types, out))
        and len(eqn.attrs["windows"].size) <= 2
    )


# -- in kernels ---------------------------------------------------------------------------------


def pointers(epilogue: Epilogue | None) -> tuple[str, ...]:
    """The pointer arguments of a kernel, from x to y."""
    count = 0 if epilogue is None else len(epilogue.operands)
    return ("x", "weight", *(f"operand{n}" for n in range(count)), "y")


def stored_strides(ir: KernelBuilder, epilogue: Epilogue | None, stride: str) -> Iterator[int]:
    """Versions of the IR for strides of columns of y (:meth:`~.IRBuilder.by_stride`): those of a
    convolution with an epilogue are contiguous."""
    if epilogue is None:
        yield from ir.by_stride(stride)
    else:
        yield 1


class Place(NamedTuple):
    """Where a register of results is stored: the output channel, counted over all groups; the
    address, and how many lanes are there."""

    channel: str
    address: str
    there: str


def emit_epilogue(ir: KernelBuilder, epilogue: Epilogue | None, value: str, place: Place) -> str:
    """A register of results after the epilogue."""
    if epilogue is None:
        return value
    return epilogue.emit(
        ir, ir.vector.lanes, value, lambda n: _operand(ir, epilogue, n, place), _no_factor
    )[-1]


def _operand(ir: KernelBuilder, epilogue: Epilogue, number: int, place: Place) -> str:
    start, (_, along) = ir[f"operand{number}"], epilogue.operands[number]
    if along is not Along.FULL:
        address = ir.at(start, place.channel) if along is Along.ROW else start
        return ir.splat(ir.load(address), ir.vector.element)
    here, first = (ir.op(f"ptrtoint ptr {p} to i64") for p in (place.address, ir["y"]))
    mask = ir.range_mask(ir.lane_indices("0"), "0", place.there)
    return ir.load_masked(ir.at_byte(start, ir.sub(here, first)), mask)


def _no_factor(number: int) -> Any:
    raise AssertionError("literal factors of convolutions are numbers")
