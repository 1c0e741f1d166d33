"""The code of the user's that a session runs, beside that which the walk has reached.

What the walk has not visited has no guards, and its effects are not known: functions in registers
of the engine or of extension modules, for instance. A session that runs such code is no program;
the walk of the next one includes it.
"""

from __future__ import annotations

import gc
import sysconfig
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import numpy as np

from evergrad.compiler.frontend.recording.call_log import CallLog
from evergrad.compiler.frontend.state.profile_hook import profile_hook

_INTERNAL = tuple(
    f"{path}/" for path in (
        Path(__file__).parents[3], Path(np.__file__).parent, sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
    )
)  # fmt: skip
# Runs impure calls: of what these run the frontend takes care itself.
_PERFORMS = CallLog.perform.__code__
_IS_GENERATOR = 0x20 | 0x80 | 0x200


class ObservedCode:
    """Functions of the user's that sessions have run and walks have not reached."""

    def __init__(self) -> None:
        self.functions: weakref.WeakSet[FunctionType] = weakref.WeakSet()

    @contextmanager
    def observe(self, codes: set[CodeType]) -> Iterator[None]:
        """Add the code that this thread runs meanwhile."""
        inside = 0

        def hook(frame: FrameType, event: str, argument: object) -> None:
            nonlocal inside
            if event == "call":
                code = frame.f_code
                if code is _PERFORMS:
                    inside += 1
                elif not inside:
                    codes.add(code)
            elif event == "return" and frame.f_code is _PERFORMS:
                inside -= 1

        with profile_hook(hook):
            yield

    def add(self, codes: set[CodeType], reached: Iterable[CodeType]) -> str | None:
        """Add the functions that have run but were not reached; the name of one of them."""
        own = [code for code in codes if is_users_code(code)]
        if not own:
            return None
        known = {part for code in reached for part in parts_of(code)}
        missed = [code for code in own if code not in known]
        for code in missed:
            self.functions.update(
                held for held in gc.get_referrers(code)
                if isinstance(held, FunctionType) and held.__code__ is code
            )  # fmt: skip
        return missed[0].co_qualname if missed else None


def is_users_code(code: CodeType) -> bool:
    """Whether code is from a file that belongs neither to the engine nor to an installed
    distribution or the standard library."""
    name = code.co_filename
    return not (name.startswith(_INTERNAL) or name.startswith("<") or code.co_flags & _IS_GENERATOR)


def parts_of(code: CodeType) -> frozenset[CodeType]:
    """Code with that of the functions and classes which are made in it."""
    inner = (
        part for held in code.co_consts if isinstance(held, CodeType) for part in parts_of(held)
    )
    return frozenset([code, *inner])
