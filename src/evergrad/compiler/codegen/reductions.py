"""Sums and extremes: how two parts meet, and the kernel that folds partial results."""

from __future__ import annotations

from functools import cache
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.elementwise import KINDS, Code
from evergrad.compiler.codegen.ir_builder import Text, Vector, is_native, numbered, vector_for
from evergrad.compiler.native.jit import name_of
from evergrad.compiler.schedule.instructions import Kernel
from evergrad.core.dtypes import dtype
from evergrad.core.trace import Equation


def memory_type(compute: str) -> str:
    return "i8" if compute == "i1" else compute


def start_of(eqn: Equation) -> str:
    """What a fold starts from."""
    found = eqn.specialization.operands[0].dtype
    return elementwise.constant(_STARTS[eqn.op.name], found)


_STARTS: dict[str, Any] = {
    "sum": 0, "amax": float("-inf"), "amin": float("inf"), "any": False, "all": True,
}  # fmt: skip


def fold(code: Code, eqn: Equation, held: str, value: str) -> str:
    return fold_two(
        code, eqn.op.name, KINDS[eqn.specialization.operands[0].dtype].compute, held, value
    )


def fold_two(code: Code, name: str, type: str, a: str, b: str) -> str:
    if name == "sum":
        word = f"fadd {elementwise.ANY_ORDER}" if type in elementwise.FLOATS else "add"
        return code.op(f"{word} {type} {a}, {b}")
    if name in ("any", "all"):
        return code.op(f"{'or' if name == 'any' else 'and'} {type} {a}, {b}")
    return code.call("llvm.maximum" if name == "amax" else "llvm.minimum", type, a, b)


def combination(name: str, found: dtype, chunks: int, length: int) -> Kernel:
    """A kernel that folds partial results, so many of one block of rows, one after the other. A
    chunk is a block."""
    if name == "sum" and is_native(found):
        return numbered(_sums(vector_for(found)), (chunks, length), (), 1)
    code = Code()
    type = KINDS[found].compute
    memory = memory_type(type)
    start = elementwise.constant(_STARTS[name], found)
    if memory != type:
        start = "1" if start == "true" else "0"
    code.lines += [
        "  %all = load ptr, ptr %args",
        "  %outp = getelementptr i64, ptr %args, i64 1", "  %outs = load ptr, ptr %outp",
        "  %countp = getelementptr i64, ptr %args, i64 2", "  %count = load i64, ptr %countp",
        "  %lengthp = getelementptr i64, ptr %args, i64 3", "  %length = load i64, ptr %lengthp",
        "  %first = mul i64 %chunk, %length", "  %before = mul i64 %first, %count",
        f"  %parts = getelementptr {memory}, ptr %all, i64 %before",
        f"  %out = getelementptr {KINDS[found].storage}, ptr %outs, i64 %first",
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
        elementwise.store(code, found, "%sum", address)
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


@cache
def _sums(vector: Vector) -> Kernel:
    """Sums of floats, a register of neighbouring ones at a time."""
    text = Text(vector, ("parts", "sums"), ("count", "length"))
    first = text.mul("%chunk", text["length"])
    parts = text.at(text["parts"], text.mul(first, text["count"]))
    sums = text.at(text["sums"], first)
    with text.loop(text["length"], vector.lanes) as place:
        mask = text.between(text.places("0"), "0", text.sub(text["length"], place))
        start = [(vector.text, "zeroinitializer")]
        with text.carrying(text["count"], start) as (number, held):
            at = text.at(parts, text.mul(number, text["length"]), place)
            part = text.load_masked(at, mask, "zeroinitializer")
            held.after = [text.plus(held.values[0], part)]
        text.store_masked(held.after[0], text.at(sums, place), mask)
    return text.kernel("combine")


def _renamed(code: Code, result: str) -> str:
    """The text of the last instruction, which defined ``result``, to be given another name."""
    line = code.lines.pop()
    return line.split(" = ", 1)[1]


# -- extremes along a row -------------------------------------------------------------------------
# Floats are compared as whole numbers of the same order, with every NaN above infinity: the loop
# is then vectorised whatever the values come from. The smallest is the greatest with signs changed.


def is_ordered(eqn: Equation) -> bool:
    """Whether a fold along a row goes over whole numbers in place of floats."""
    return (
        eqn.op.name in ("amax", "amin")
        and KINDS[eqn.specialization.operands[0].dtype].compute in _INTEGERS
    )


_INTEGERS = {"float": ("i32", 31, 0x7FC00000), "double": ("i64", 63, 0x7FF8000000000000)}


def ordered_type(eqn: Equation) -> str:
    return _INTEGERS[KINDS[eqn.specialization.operands[0].dtype].compute][0]


def ordered_start(eqn: Equation) -> str:
    """What minus infinity is among the whole numbers."""
    _, bits, _ = _INTEGERS[KINDS[eqn.specialization.operands[0].dtype].compute]
    infinity = 0x7F800000 if bits == 31 else 0x7FF0000000000000
    return str(-infinity - 1)


def take_in_order(code: Code, eqn: Equation, held: str, value: str) -> str:
    """The greater of what is held and a float."""
    type = KINDS[eqn.specialization.operands[0].dtype].compute
    integer, bits, nan = _INTEGERS[type]
    if eqn.op.name == "amin":
        value = code.op(f"fneg {type} {value}")
    raw = code.op(f"bitcast {type} {value} to {integer}")
    sign = code.op(f"ashr {integer} {raw}, {bits}")
    flipped = code.op(f"and {integer} {sign}, {(1 << bits) - 1}")
    placed = code.op(f"xor {integer} {raw}, {flipped}")
    unordered = code.op(f"fcmp uno {type} {value}, {value}")
    placed = code.op(f"select i1 {unordered}, {integer} {nan}, {integer} {placed}")
    return code.call("llvm.smax", integer, held, placed)


def from_order(code: Code, eqn: Equation, held: str) -> str:
    """The float that a whole number stands for."""
    type = KINDS[eqn.specialization.operands[0].dtype].compute
    integer, bits, _ = _INTEGERS[type]
    sign = code.op(f"ashr {integer} {held}, {bits}")
    flipped = code.op(f"and {integer} {sign}, {(1 << bits) - 1}")
    raw = code.op(f"xor {integer} {held}, {flipped}")
    value = code.op(f"bitcast {integer} {raw} to {type}")
    return code.op(f"fneg {type} {value}") if eqn.op.name == "amin" else value
