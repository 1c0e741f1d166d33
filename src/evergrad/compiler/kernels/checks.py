"""The lowering of checks: a condition that does not hold sets the status word."""

from __future__ import annotations

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native.jit import name_of
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.trace import Equation
from evergrad.ops.rows.check import CHECK

_TEXT = """define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {
entry:
  %condition = load ptr, ptr %args
  %p1 = getelementptr i64, ptr %args, i64 1
  %out = load ptr, ptr %p1
  %p2 = getelementptr i64, ptr %args, i64 2
  %status = load ptr, ptr %p2
  %holds = load i8, ptr %condition
  store i8 %holds, ptr %out
  %fails = icmp eq i8 %holds, 0
  br i1 %fails, label %bad, label %good
bad:
  store i64 1, ptr %status, align 8
  br label %good
good:
  ret void
}
"""


@lowers(CHECK)
def lower_check(lowering: Lowering, eqn: Equation) -> bool:
    name = name_of(_TEXT, "check")
    kernel = Kernel(name, _TEXT.replace("@SELF", f"@{name}"))
    lowering.add_kernel("check", kernel, [eqn.args[0]], [eqn.outs[0], None], 1)
    return True
