"""Source locations in the user's program, for error messages and reports.

A location is a code object and an instruction offset, which are cheap to take; file and line are
computed only when a message needs them.
"""

from __future__ import annotations

import dis
import linecache
import sys
from types import CodeType, FrameType

from evergrad.extension import provides

SourceLocation = tuple[CodeType, int]

# Parts of this package that are programs themselves: their lines are reported as the user's.
_PROGRAMS = ("evergrad.models.", "evergrad.train.")
# The modules seen so far that belong to the engine, and those that do not.
_inside: set[str] = set()
_outside: set[str] = set()


def user_location(depth: int = 1) -> SourceLocation | None:
    """The innermost frame outside of the engine, ``depth`` frames above the caller at least."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        try:
            name = frame.f_globals["__name__"]
        except KeyError:  # code run by exec() may have no name
            name = ""
        if name not in _inside and (name in _outside or not _is_engine(name)):
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


def user_location_in(frame: FrameType | None) -> SourceLocation | None:
    """The innermost frame outside of the engine in the stack of another thread."""
    while frame is not None and _is_engine(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def user_stacklevel() -> int:
    """The ``stacklevel`` with which a warning by the caller names the user's line."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_engine(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    return level


def _is_engine(name: str) -> bool:
    """Whether a module belongs to the engine; cached."""
    inside = f"{name}.".startswith("evergrad.") and not f"{name}.".startswith(_PROGRAMS)
    (_inside if inside else _outside).add(name)
    return inside


def user_line() -> str:
    """The user's line that is running, for a message."""
    return describe(user_location(1))


def line_of(location: SourceLocation) -> int:
    code, offset = location
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def reads_attribute(location: SourceLocation | None, name: str) -> bool:
    """Whether the line at a location reads an attribute of that name, as in ``x.data[0] = 1``."""
    if location is None or name not in location[0].co_names:
        return False
    line = line_of(location)
    current = None
    for instruction in dis.get_instructions(location[0]):
        if instruction.positions is not None:
            current = instruction.positions.lineno
        if current == line and instruction.opname == "LOAD_ATTR" and instruction.argval == name:
            return True
    return False


@provides("describe_location")
def describe(location: SourceLocation | None) -> str:
    """``file.py:12, in f: y = x.exp()``"""
    if location is None:
        return "an unknown location"
    code, line = location[0], line_of(location)
    text = linecache.getline(code.co_filename, line).strip()
    where = f"{code.co_filename}:{line}, in {code.co_name}"
    return f"{where}: {text}" if text else where
