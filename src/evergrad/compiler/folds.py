"""Sums and extremes: how two parts meet, and the kernel that folds partial results."""

from __future__ import annotations

from typing import Any

from evergrad.compiler import scalar
from evergrad.compiler.kernel import Kernel
from evergrad.compiler.llvm import name_of
from evergrad.compiler.scalar import KINDS, Code
from evergrad.core.dtypes import dtype
from evergrad.core.trace import Equation


def memory_type(compute: str) -> str:
    return "i8" if compute == "i1" else compute


def start_of(eqn: Equation) -> str:
    """What a fold starts from."""
    found = eqn.rule.operands[0].dtype
    return scalar.constant(_STARTS[eqn.op.name], found)


_STARTS: dict[str, Any] = {
    "sum": 0, "amax": float("-inf"), "amin": float("inf"), "any": False, "all": True,
}  # fmt: skip


def fold(code: Code, eqn: Equation, held: str, value: str) -> str:
    return fold_two(code, eqn.op.name, KINDS[eqn.rule.operands[0].dtype].compute, held, value)


def fold_two(code: Code, name: str, type: str, a: str, b: str) -> str:
    if name == "sum":
        word = f"fadd {scalar.ANY_ORDER}" if type in scalar.FLOATS else "add"
        return code.op(f"{word} {type} {a}, {b}")
    if name in ("any", "all"):
        return code.op(f"{'or' if name == 'any' else 'and'} {type} {a}, {b}")
    return code.call("llvm.maximum" if name == "amax" else "llvm.minimum", type, a, b)


def combination(name: str, found: dtype, chunks: int, length: int) -> Kernel:
    """A kernel that folds the partial results of all chunks, one after the other."""
    code = Code()
    type = KINDS[found].compute
    memory = memory_type(type)
    start = scalar.constant(_STARTS[name], found)
    if memory != type:
        start = "1" if start == "true" else "0"
    code.lines += [
        "  %parts = load ptr, ptr %args",
        "  %outp = getelementptr i64, ptr %args, i64 1", "  %out = load ptr, ptr %outp",
        "  %countp = getelementptr i64, ptr %args, i64 2", "  %count = load i64, ptr %countp",
        "  %lengthp = getelementptr i64, ptr %args, i64 3", "  %length = load i64, ptr %lengthp",
        "  br label %places",
        "places:", "  %i = phi i64 [0, %entry], [%i1, %next]",
        "  br label %parts_of",
        "parts_of:", "  %c = phi i64 [0, %places], [%c1, %parts_of]",
        f"  %held = phi {memory} [{start}, %places], [%sum, %parts_of]",
        "  %begin = mul i64 %c, %length", "  %at = add i64 %begin, %i",
        f"  %p = getelementptr {memory}, ptr %parts, i64 %at",
        f"  %part = load {memory}, ptr %p",
    ]  # fmt: skip
    result = fold_two(code, name, memory, "%held", "%part")
    code.lines += [
        f"  %sum = {_renamed(code, result)}",
        "  %c1 = add i64 %c, 1", "  %more = icmp ult i64 %c1, %count",
        "  br i1 %more, label %parts_of, label %next",
        "next:",
    ]  # fmt: skip
    kind = KINDS[found]
    address = code.op(f"getelementptr {kind.storage}, ptr %out, i64 %i")
    if memory == type:
        scalar.store(code, found, "%sum", address)
    else:
        code.do(f"store i8 %sum, ptr {address}")
    code.lines += [
        "  %i1 = add i64 %i, 1", "  %again = icmp ult i64 %i1, %length",
        "  br i1 %again, label %places, label %end", "end:", "  ret void",
    ]  # fmt: skip
    body = "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {\nentry:\n" + (
        "\n".join(code.lines) + "\n}\n"
    )
    made = name_of(body, "combine")
    kernel = Kernel(code, made, body.replace("@SELF", f"@{made}"))
    kernel.numbers = [chunks, length]
    return kernel


def _renamed(code: Code, result: str) -> str:
    """The text of the last instruction, which defined ``result``, to be given another name."""
    line = code.lines.pop()
    return line.split(" = ", 1)[1]
