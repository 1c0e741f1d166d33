"""Whether the compiled function returns the result of a call, with nothing in between, read off its
bytecode: no code can look at such a value while the function runs."""

from __future__ import annotations

import dis
import functools
from types import CodeType, FrameType
from typing import Any

# Instructions that take no value or so many, and look at nothing else.
_TAKES = {
    "LOAD_CONST": 0, "LOAD_SMALL_INT": 0, "LOAD_FAST": 0, "LOAD_FAST_BORROW": 0,
    "LOAD_FAST_CHECK": 0, "LOAD_DEREF": 0, "LOAD_GLOBAL": 0, "PUSH_NULL": 0, "LOAD_ATTR": 1,
    "LOAD_METHOD": 1, "BINARY_OP": 2, "BINARY_SUBSCR": 2, "COMPARE_OP": 2, "UNARY_NEGATIVE": 1,
    "POP_TOP": 1, "STORE_FAST": 1,
}  # fmt: skip
# Names by which code reaches its own variables.
_INTROSPECTION = frozenset({"locals", "vars", "dir", "eval", "exec", "sys", "inspect"})
_CONTAINERS = ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP")
_NOTHING = frozenset({"NOP", "RESUME", "PRECALL", "KW_NAMES", "EXTENDED_ARG", "CACHE"})
_IS_GENERATOR = 0x20 | 0x80 | 0x200
# Any value, and the one that is followed, on the modelled stack.
_OTHER, _VALUE = False, True


def is_returned(frame: FrameType, function: CodeType, caller: CodeType) -> bool:
    """Whether a frame is that of a function, called by a caller, and only returns what the call
    that it is in gives it. (Other frames may have been called by functions of C, which look at
    results: ``sorted(map(f, xs))``.)"""
    before = frame.f_back
    is_direct = frame.f_code is function and before is not None and before.f_code is caller
    return is_direct and returns_at(function, frame.f_lasti)


@functools.lru_cache(maxsize=4096)
def returns_at(code: CodeType, offset: int) -> bool:
    """Whether what the instruction at an offset pushes is returned, by itself or as a member of
    tuples, lists and dictionaries, and nothing else is done with it before."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in _NOTHING]
    if code.co_flags & _IS_GENERATOR or not _INTROSPECTION.isdisjoint(code.co_names):
        return False
    # The offset may be that of a cache behind the instruction.
    at = max(n for n, i in enumerate(instructions) if i.offset <= offset)
    loads = _returns(instructions[at + 1 :])
    if loads is None:
        return False
    # Those of other paths, such as where an exception is handled, may look at the value.
    return all(
        sum(i.argval == name for i in instructions if i.opname.startswith("LOAD_FAST")) == count
        and not any(type(i.argval) is tuple and name in i.argval for i in instructions)
        for name, count in loads.items()
    )


def _returns(instructions: list[Any]) -> dict[str, int] | None:
    """How often each variable that has held the value is loaded until it is returned; ``None`` if
    something else is done with it, or if that is not known."""
    stack, holders = [_VALUE], set[str]()
    loads: dict[str, int] = {}
    until = -1  # the offset that is jumped to
    for i in instructions:
        name, arg = i.opname, i.arg or 0
        if i.offset < until:
            continue
        if name == "RETURN_VALUE":
            return loads if stack[-1:] == [_VALUE] else None
        if name == "JUMP_FORWARD":
            until = i.argval
            continue
        if name == "SWAP":
            _fill(stack, arg)
            stack[-arg], stack[-1] = stack[-1], stack[-arg]
            continue
        popped = _popped(name, arg)
        if popped is None:
            return None
        taken = _taken(stack, popped)
        is_value = _VALUE in taken
        if name == "STORE_FAST":
            if is_value:
                loads.setdefault(i.argval, 0)
            (holders.add if is_value else holders.discard)(i.argval)
            is_value = False
        elif name.startswith("LOAD_FAST"):
            is_value = i.argval in holders
            if i.argval in loads:
                loads[i.argval] += 1
        elif is_value and name not in _CONTAINERS:
            return None
        effect = dis.stack_effect(i.opcode, i.arg if i.opcode >= dis.HAVE_ARGUMENT else None)
        stack += [is_value] * (1 if name == "CALL" else effect + popped)
    return None


def _popped(name: str, arg: int) -> int | None:
    """How many values an instruction takes; ``None`` if that is not known."""
    if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SLICE"):
        return arg
    if name == "BUILD_MAP":
        return 2 * arg
    if name == "BUILD_CONST_KEY_MAP":
        return arg + 1
    return arg + 2 if name == "CALL" else _TAKES.get(name)


def _fill(stack: list[bool], count: int) -> None:
    """Let a stack have so many values: those below the first one are others."""
    while len(stack) < count:
        stack.insert(0, _OTHER)


def _taken(stack: list[bool], count: int) -> list[bool]:
    _fill(stack, count)
    taken = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    return taken
