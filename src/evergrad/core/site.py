"""Where in the user's program something happened.

A site is a code object and an instruction offset, which cost next to nothing to take; the file and
line are worked out only when a message needs them.
"""

from __future__ import annotations

import linecache
import sys
from types import CodeType, FrameType

Site = tuple[CodeType, int]

# Parts of this package that are programs themselves: what they do is told with their own lines.
_PROGRAMS = ("evergrad.models.", "evergrad.train.")
# For each module met so far, whether it belongs to the engine.
_engine: dict[str, bool] = {}


def user_site(depth: int = 1) -> Site | None:
    """The innermost frame outside of the engine, ``depth`` frames above the caller at least."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        inside = _engine.get(name)
        if inside is None:
            inside = _engine[name] = _is_engine(name)
        if not inside:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


def _is_engine(name: str) -> bool:
    return f"{name}.".startswith("evergrad.") and not f"{name}.".startswith(_PROGRAMS)


def user_line() -> str:
    """The user's line that is being run, for a message."""
    return describe(user_site(1))


def line_of(site: Site) -> int:
    code, offset = site
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno


def describe(site: Site | None) -> str:
    """``file.py:12, in f: y = x.exp()``"""
    if site is None:
        return "an unknown place"
    code, line = site[0], line_of(site)
    text = linecache.getline(code.co_filename, line).strip()
    where = f"{code.co_filename}:{line}, in {code.co_name}"
    return f"{where}: {text}" if text else where
