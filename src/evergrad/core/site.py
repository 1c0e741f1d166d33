"""Where in the user's program something happened.

A site is a code object and an instruction offset, which cost next to nothing to take; the file and
line are worked out only when a message needs them.
"""

from __future__ import annotations

import linecache
import sys
from types import CodeType, FrameType

Site = tuple[CodeType, int]

_INSIDE = ("evergrad", "evergrad.")


def user_site(depth: int = 1) -> Site | None:
    """The innermost frame outside this package, ``depth`` frames above the caller at least."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None:
        if frame.f_globals.get("__name__", "")[:9] not in _INSIDE:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


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
