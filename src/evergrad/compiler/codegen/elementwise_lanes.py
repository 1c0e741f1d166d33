"""How a register of elements of a row is computed: the IR of one element, vectorized.

For kernels that are written register by register, such as convolutions. The instructions of an
element are those of :mod:`.codegen.elementwise`: without branches, so that vectors take the place
of its scalars, and every row that has an ``emit`` has lanes. What is no sequence of instructions
(a function of the C library) is called lane by lane.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import KINDS, emit_op
from evergrad.compiler.native.jit import name_of
from evergrad.core.dtypes import dtype
from evergrad.core.op import Op
from evergrad.core.types import Attrs

# Writes the instructions of one element, given its operands.
Build = Callable[[Code, list[str]], str]

_TOKEN = re.compile(
    r"(?P<name>@[\w.$]+)|%[\w.]+"
    r"|\b(?P<type>float|double|half|i1|i8|i16|i32|i64)\b"
    r"|(?<=[ (])(?P<constant>0x[0-9A-F]{16}|-?\d+|true|false)(?=[,)]|$)"
)
_VARIANTS = re.compile(r' "vector-function-abi-variant"="[^"]*"')
_OVERLOAD = re.compile(r"\.(f16|f32|f64|i\d+)$")
_DECLARED = re.compile(r"declare (\S+) @[\w.$]+\((.*?)\)")
_DEFINED = re.compile(r"define [^@]*?(\S+) @[\w.$]+\((.*?)\)")


def has_lanes(op: Op) -> bool:
    """Whether registers of elements of a row can be computed: where one element can, and does not
    depend on its position."""
    emit = op.emit
    return emit.function is not None and op.indexing is None and not (emit.numbered or op.combine)


def emit_lanes(
    code: Code, lanes: int, op: Op, types: Sequence[dtype], out: dtype, attrs: Attrs,
    operands: Sequence[str],
) -> str:  # fmt: skip
    """A register of elements of an op; the operands are registers in the computing types of their
    element ``types``, or constants of one lane."""
    given = [(KINDS[t].compute, value) for t, value in zip(types, operands, strict=True)]

    def build(one: Code, args: list[str]) -> str:
        return emit_op(one, op, types[-1], out, attrs, args)

    return by_lanes(code, lanes, build, given, KINDS[out].compute)


def decoded(code: Code, lanes: int, found: dtype, raw: str) -> str:
    """A register in its computing type, given as it is stored."""
    kind = KINDS[found]
    if kind.storage == kind.compute:
        return raw
    return by_lanes(code, lanes, lambda one, args: elementwise.decoded(one, found, args[0]),
                    [(kind.storage, raw)], kind.compute)  # fmt: skip


def encoded(code: Code, lanes: int, found: dtype, value: str) -> str:
    """A register as it is stored."""
    kind = KINDS[found]
    if kind.storage == kind.compute:
        return value
    return by_lanes(code, lanes, lambda one, args: elementwise.encoded(one, found, args[0]),
                    [(kind.compute, value)], kind.storage)  # fmt: skip


def call_lanes(code: Code, lanes: int, function: str, type: str, *args: str) -> str:
    """Call an intrinsic or a function of :mod:`.vecmath.functions` for registers of floats."""
    given = [(type, value) for value in args]
    return by_lanes(code, lanes, lambda one, words: one.call(function, type, *words), given, type)


def by_lanes(
    code: Code, lanes: int, build: Build, operands: Sequence[tuple[str, str]], result: str
) -> str:
    """What ``build`` computes of one lane, for all lanes of registers: operands with their element
    types; the element type of the result."""
    one = Code()
    words, registers = [], []
    for number, (type, given) in enumerate(operands):
        is_register = given.startswith("%")
        words.append(f"%x{number}" if is_register else given)
        if is_register:
            registers.append((type, given, f"%x{number}"))
    found = build(one, words)
    parameters = ", ".join(f"{type} {word}" for type, _, word in registers)
    body = "\n".join([*one.lines, f"  ret {result} {found}"])
    scalar = f"define internal {result} @SELF({parameters}) alwaysinline nounwind {{\n{body}\n}}"
    name = name_of(scalar, "element")
    made = vectorized({**one.helpers, name: scalar.replace("@SELF", f"@{name}")}, lanes)
    code.helpers.update(made)
    given = ", ".join(f"<{lanes} x {type}> {value}" for type, value, _ in registers)
    return code.op(f"call <{lanes} x {result}> @{lane_name(name, lanes)}({given})")


def lane_name(name: str, lanes: int) -> str:
    """The name of the version of a function for registers."""
    if name.startswith("llvm."):
        return _OVERLOAD.sub(rf".v{lanes}\1", name)
    return f"{name}.v{lanes}"


def vectorized(definitions: dict[str, str], lanes: int) -> dict[str, str]:
    """Functions for registers, in place of the given ones for one element. Those with branches and
    those of the C library remain, and are called for each lane."""
    found: dict[str, str] = {}
    for name, text in definitions.items():
        head = _heading(text)
        if head is None or _is_vector(text):
            found[name] = text
        elif name.startswith("llvm."):
            found[lane_name(name, lanes)] = _vectorized(text, lanes)
            found.setdefault(name, text)  # for those that remain
        elif text.startswith("declare") or " br " in text:
            found[name] = text
            own = _name_in(text)
            found[lane_name(own, lanes)] = _for_each_lane(own, *head, lanes, definitions)
        else:
            found[lane_name(name, lanes)] = _vectorized(text, lanes)
    return found


def _name_in(text: str) -> str:
    matched = re.search(r"@([\w.$]+)", text)
    assert matched is not None
    return matched[1]


def _heading(text: str) -> tuple[str, list[str]] | None:
    """The type of a function's result and those of its parameters."""
    matched = _DECLARED.match(text) or _DEFINED.match(text)
    if matched is None:
        return None
    return matched[1], [given.split()[0] for given in matched[2].split(", ")]


def _is_vector(text: str) -> bool:
    """Whether a function is one of registers already: of rare arguments."""
    return " x " in text.partition("\n")[0]


def _vectorized(text: str, lanes: int) -> str:
    return "\n".join(_vectorized_line(line, lanes) for line in text.split("\n"))


def _vectorized_line(line: str, lanes: int) -> str:
    last = ""  # the type of the constants that follow

    def replaced(found: re.Match[str]) -> str:
        nonlocal last
        if found["name"]:
            return f"@{lane_name(found['name'][1:], lanes)}"
        if found["type"]:
            last = found["type"]
            return f"<{lanes} x {last}>"
        if found["constant"]:
            return f"<{', '.join([f'{last} {found[0]}'] * lanes)}>"
        return found[0]

    return _TOKEN.sub(replaced, _VARIANTS.sub("", line))


def _for_each_lane(
    name: str, result: str, types: list[str], lanes: int, definitions: dict[str, str]
) -> str:
    """A function of registers that calls one of single elements, or its version for so many lanes
    if there is one."""
    many, words = f"<{lanes} x {result}>", [f"%x{n}" for n in range(len(types))]
    given = [f"<{lanes} x {type}> {word}" for type, word in zip(types, words, strict=True)]
    head = f"define internal {many} @{lane_name(name, lanes)}({', '.join(given)}) nounwind {{"
    known = f"{name}_v{lanes}"
    if known in definitions:
        return f"{head}\n  %r = call {many} @{known}({', '.join(given)})\n  ret {many} %r\n}}"
    lines, before = [], "poison"
    for lane in range(lanes):
        for n, register in enumerate(given):
            lines.append(f"  %x{n}.{lane} = extractelement {register}, i64 {lane}")
        each = ", ".join(f"{type} {word}.{lane}" for type, word in zip(types, words, strict=True))
        lines.append(f"  %c{lane} = call {result} @{name}({each})")
        lines.append(f"  %r{lane} = insertelement {many} {before}, {result} %c{lane}, i64 {lane}")
        before = f"%r{lane}"
    return "\n".join([head, *lines, f"  ret {many} {before}", "}"])
