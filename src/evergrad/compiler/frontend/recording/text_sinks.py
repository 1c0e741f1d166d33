"""Where the text of a formatted number goes: the call that code gives it to, read off its bytecode.

``print(f"loss {loss.item():.3f}")`` formats a number only to print it. If between the formatting
and a call there is nothing but the rest of the text, no other code can see it: the number need not
be known then, and the text is made when the call is.
"""

from __future__ import annotations

import dis
import functools
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# A variable with the names of attributes that follow: (kind, name, *attributes).
Chain = tuple[str, ...]

_LOADS = {"LOAD_GLOBAL": "global", "LOAD_FAST": "local", "LOAD_DEREF": "local",
          "LOAD_FAST_CHECK": "local", "LOAD_NAME": "local"}  # fmt: skip
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_FORMATS = ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC")
_CALLS = ("CALL", "CALL_FUNCTION_EX", "CALL_KW")


@functools.lru_cache(maxsize=4096)
def sink_of(code: CodeType, offset: int) -> Chain | None:
    """The function that gets the text which the instruction at an offset formats a part of;
    ``None`` if other code may see it, or if that is not known."""
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    at = next((n for n, i in enumerate(instructions) if i.offset == offset), None)
    if at is None or not _formats(instructions[at]):
        return None
    first = at
    while instructions[first].starts_line is None or not instructions[first].starts_line:
        first -= 1
        if first < 0:
            return None
    # A statement may begin some lines before.
    for start in _starts(instructions, first):
        found = _sink(instructions, start, at)
        if found is not None:
            return found
    return None


def _starts(instructions: Leaves, first: int) -> list[int]:
    """Where the statement may begin: at this line, or at one of the few before."""
    lines = [n for n in range(first, -1, -1) if instructions[n].starts_line]
    return lines[:6]


def _formats(instruction: Any) -> bool:
    """Whether an instruction makes a text by ``__format__``, without a conversion before."""
    name, arg = instruction.opname, instruction.arg or 0
    return name in _FORMATS and (name != "FORMAT_VALUE" or arg & 3 == 0)


def _sink(instructions: Leaves, start: int, at: int) -> Chain | None:
    """The call that gets the text, if code from ``start`` on is one expression."""
    stack: Leaves = []  # for each slot the variable it is, or None
    text: int | None = None  # the slot of the text
    for n in range(start, len(instructions)):
        i = instructions[n]
        name, arg = i.opname, i.arg or 0
        if n > start and (i.is_jump_target or i.opcode in dis.hasjrel or i.opcode in dis.hasjabs):
            return None
        effect = dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)
        popped, pushed = _effect(name, arg, effect)
        if popped is None or popped > len(stack):
            return None
        low = len(stack) - popped
        taken = stack[low:]
        is_taken = text is not None and text >= low
        if is_taken and name in ("CALL", "CALL_KW") and n + 1 < len(instructions):
            follows = instructions[n + 1].opname
            callee = next((chain for chain in taken[1::-1] if chain is not None), None)
            is_argument = text is not None and text >= low + 2
            return callee if follows == "POP_TOP" and is_argument else None
        if is_taken and name != "BUILD_STRING":
            return None
        del stack[low:]
        stack += _slots(name, arg, i, taken, pushed)
        if n == at or is_taken:
            text = low
    return None


def _effect(name: str, arg: int, effect: int) -> tuple[int | None, int]:
    """How many slots an instruction takes and puts; ``None`` if that is not known."""
    if name in ("CALL", "CALL_KW"):
        popped = arg + 2 + (name == "CALL_KW")
        return popped, 1
    if name in ("PRECALL", "KW_NAMES", "RESUME", "NOP", "EXTENDED_ARG", "CACHE"):
        return 0, 0
    if name in ("BUILD_STRING", "BUILD_TUPLE", "BUILD_LIST"):
        return arg, 1
    if name == "FORMAT_VALUE":
        return (2 if arg & 4 else 1), 1
    if name in ("FORMAT_SIMPLE", "CONVERT_VALUE", "UNARY_NEGATIVE", "UNARY_NOT"):
        return 1, 1
    if name in ("FORMAT_WITH_SPEC", "BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP"):
        return 2, 1
    if name == "LOAD_GLOBAL" or name in _LOADS or name in ("LOAD_CONST", "PUSH_NULL"):
        return 0, effect
    if name in _ATTRIBUTES:
        return 1, effect + 1
    if name in ("POP_TOP", "STORE_FAST", "STORE_DEREF", "STORE_GLOBAL"):
        return 1, 0
    return None, 0


def _slots(name: str, arg: int, i: Any, taken: Leaves, pushed: int) -> list[object]:
    chain: object = None
    if name in _LOADS:
        chain = (_LOADS[name], i.argval)
    elif name in _ATTRIBUTES and taken and taken[0] is not None:
        chain = (*taken[0], i.argval)
    return [chain] * pushed


def found_at(chain: Chain, frame: Any) -> object:
    """What a variable of a frame, or an attribute of it, refers to; ``None`` where code would have
    to run to find that."""
    kind, name, *attributes = chain
    if kind == "global":
        table = frame.f_globals if name in frame.f_globals else frame.f_builtins
        held = table.get(name)
    else:
        held = frame.f_locals.get(name)
    for attribute in attributes:
        held = getattr(held, "__dict__", {}).get(attribute)
    return held
