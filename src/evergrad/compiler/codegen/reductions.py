"""Reductions: identities, the reduction of two elements, and the kernel that combines partials."""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.code import FLOATS, Code
from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import Vector, is_native, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.native.jit import name_of
from evergrad.core.dtypes import dtype
from evergrad.core.row_facts import Combine
from evergrad.core.trace import Equation

# The identity elements of reductions.
_IDENTITIES: dict[Combine, object] = {
    Combine.SUM: 0, Combine.MAX: float("-inf"), Combine.MIN: float("inf"), Combine.ANY: False,
    Combine.ALL: True,
}  # fmt: skip


def combine_of(eqn: Equation) -> Combine:
    """How the reduction of an equation joins two partial results."""
    assert eqn.op.combine is not None, f"{eqn.op.name} is no reduction"
    return eqn.op.combine


def memory_type(compute: str) -> str:
    """The type of a partial result in memory."""
    return "i8" if compute == "i1" else compute


def compute_type(eqn: Equation) -> str:
    """The IR type in which a reduction is computed."""
    return KINDS[eqn.specialization.operands[0].dtype].compute


def identity_of(eqn: Equation) -> str:
    """The identity element of a reduction."""
    return elementwise.constant(_IDENTITIES[combine_of(eqn)], eqn.specialization.operands[0].dtype)


def reduce_element(code: Code, eqn: Equation, held: str, value: str) -> str:
    """An accumulator after one more element."""
    return _reduce_two(code, combine_of(eqn), compute_type(eqn), held, value)


def _reduce_two(code: Code, combine: Combine, type: str, a: str, b: str) -> str:
    if combine is Combine.SUM:
        word = f"fadd {elementwise.ANY_ORDER}" if type in FLOATS else "add"
        return code.op(f"{word} {type} {a}, {b}")
    if combine in (Combine.ANY, Combine.ALL):
        return code.op(f"{'or' if combine is Combine.ANY else 'and'} {type} {a}, {b}")
    return code.call("llvm.maximum" if combine is Combine.MAX else "llvm.minimum", type, a, b)


def combine_partials(combine: Combine, found: dtype, chunks: int, length: int) -> Kernel:
    """A kernel that combines the partial results of ``chunks`` chunks, of ``length`` elements each,
    in their order. A chunk of this kernel is a block of an outer reduction."""
    if combine is Combine.SUM and is_native(found):
        return with_numbers(_sums(vector_for(found)), (chunks, length), (), 1)
    code = Code()
    type = KINDS[found].compute
    memory = memory_type(type)
    start = elementwise.constant(_IDENTITIES[combine], found)
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
    result = _reduce_two(code, combine, memory, "%held", "%part")
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
    kernel = Kernel(made, body.replace("@SELF", f"@{made}"), code.helpers)
    kernel.numbers = [chunks, length]
    return kernel


@cache
def _sums(vector: Vector) -> Kernel:
    """Sums of floats, vectorized over neighbouring elements; of float32 in float64."""
    b = KernelBuilder(vector, ("parts", "sums"), ("count", "length"))
    first = b.mul("%chunk", b["length"])
    parts = b.at(b["parts"], b.mul(first, b["count"]))
    sums = b.at(b["sums"], first)
    wide = vector.of("double")
    with b.loop(b["length"], vector.lanes) as start:
        mask = b.range_mask(b.lane_indices("0"), "0", b.sub(b["length"], start))
        with b.carrying_loop(b["count"], [(wide, "zeroinitializer")]) as (number, held):
            address = b.at(parts, b.mul(number, b["length"]), start)
            part = b.load_masked(address, mask)
            if vector.element == "float":
                part = b.op(f"fpext {vector.type} {part} to {wide}")
            held.after = [b.op(f"fadd {wide} {held.values[0]}, {part}")]
        total = held.after[0]
        if vector.element == "float":
            total = b.op(f"fptrunc {wide} {total} to {vector.type}")
        b.store_masked(total, b.at(sums, start), mask)
    return b.kernel("combine")


def _renamed(code: Code, result: str) -> str:
    """The last instruction, which defined ``result``, to be given another name."""
    line = code.lines.pop()
    return line.split(" = ", 1)[1]


# -- inner amax and amin ------------------------------------------------------------------------
# Floats are compared as integers of the same order, with every NaN above infinity: LLVM vectorizes
# that loop whatever the operands are. The minimum is the maximum with signs flipped.


def is_ordered(eqn: Equation) -> bool:
    """Whether an inner reduction is over ordered integers in place of floats."""
    return eqn.op.combine in (Combine.MAX, Combine.MIN) and compute_type(eqn) in _INTEGERS


_INTEGERS = {"float": ("i32", 31, 0x7FC00000), "double": ("i64", 63, 0x7FF8000000000000)}


def ordered_type(eqn: Equation) -> str:
    return _INTEGERS[compute_type(eqn)][0]


def ordered_identity(eqn: Equation) -> str:
    """Minus infinity as an ordered integer."""
    _, bits, _ = _INTEGERS[compute_type(eqn)]
    infinity = 0x7F800000 if bits == 31 else 0x7FF0000000000000
    return str(-infinity - 1)


def max_ordered(code: Code, eqn: Equation, held: str, value: str) -> str:
    """The maximum of an ordered integer and a float."""
    type = compute_type(eqn)
    integer, bits, nan = _INTEGERS[type]
    if eqn.op.combine is Combine.MIN:
        value = code.op(f"fneg {type} {value}")
    raw = code.op(f"bitcast {type} {value} to {integer}")
    sign = code.op(f"ashr {integer} {raw}, {bits}")
    flipped = code.op(f"and {integer} {sign}, {(1 << bits) - 1}")
    ordered = code.op(f"xor {integer} {raw}, {flipped}")
    unordered = code.op(f"fcmp uno {type} {value}, {value}")
    ordered = code.op(f"select i1 {unordered}, {integer} {nan}, {integer} {ordered}")
    return code.call("llvm.smax", integer, held, ordered)


def from_ordered(code: Code, eqn: Equation, held: str) -> str:
    """The float of an ordered integer."""
    type = compute_type(eqn)
    integer, bits, _ = _INTEGERS[type]
    sign = code.op(f"ashr {integer} {held}, {bits}")
    flipped = code.op(f"and {integer} {sign}, {(1 << bits) - 1}")
    raw = code.op(f"xor {integer} {held}, {flipped}")
    value = code.op(f"bitcast {integer} {raw} to {type}")
    return code.op(f"fneg {type} {value}") if eqn.op.combine is Combine.MIN else value
