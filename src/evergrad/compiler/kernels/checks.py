"""The lowering of checks: a condition that does not hold sets the status word."""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
from evergrad.ops.rows.check import CHECK


@cache
def _check() -> Kernel:
    """The kernel with the arguments condition, result and status word."""
    ir = KernelBuilder(Vector("i8", 1, 1), ("condition", "out", "status"), ())
    holds = ir.load(ir["condition"])
    ir.store(holds, ir["out"])
    with ir.when(ir.op(f"icmp eq i8 {holds}, 0")):
        ir.do(f"store i64 1, ptr {ir['status']}")
    return ir.kernel("check")


@lowers(CHECK)
def lower_check(lowering: Lowering, eqn: Equation) -> bool:
    kernel = with_numbers(_check(), (), (), 1)
    lowering.add_kernel("check", kernel, [eqn.args[0]], [eqn.outs[0], None], 1)
    return True
