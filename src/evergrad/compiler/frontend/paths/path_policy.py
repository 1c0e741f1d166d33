"""Which paths of a function that decides by the data are compiled, and how many are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from evergrad.compiler.frontend.captured import Captured
from evergrad.compiler.frontend.guards.revalidation import difference
from evergrad.compiler.frontend.paths.path import Path, StageMemo
from evergrad.compiler.frontend.paths.stage_programs import compile_stages
from evergrad.compiler.frontend.session import NotWholeError, Session
from evergrad.compiler.frontend.variant import Variant
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.core.python_numbers import Expressions

# The most paths that are kept for one signature.
MOST_PATHS = 16
# So many paths of a signature are compiled at once; others when they are taken a second time.
_FIRST_PATHS = 4
# A function of which more paths were compiled is run by Python: the data keeps deciding otherwise.
_MOST_COMPILED = 32
# The most paths of a function with shapes that depend on the data: with others Python evaluates the
# operations that such a shape is of.
_MOST_SIZES = 12
# The same after so many sizes that did not recur.
_MOST_NEW_SIZES = 8
# After so many paths one after the other that were taken once, what Python reads ends segments.
_MOST_NEW_PATHS = 32
# The most paths remembered that were taken once.
_MOST_SEEN = 512


class PathPolicy:
    """What is known of the paths of one compiled function."""

    def __init__(self) -> None:
        # The stages that have run for the present call.
        self.memo: StageMemo = StageMemo()
        self.is_on: bool = True
        self.seen: dict[object, None] = {}
        self.compiled: Counter[Any] = Counter()
        # How many paths had shapes that depend on the data, and how many were taken once.
        self.sized = self.new_sizes = 0
        # How many paths in a row were taken for the first time.
        self.new_paths = 0

    @property
    def reads_sizes(self) -> bool:
        """Whether shapes may depend on numbers of the data."""
        return self.sized < _MOST_SIZES and self.new_sizes < _MOST_NEW_SIZES

    def require_recurring(self, signature: Any, session: Session) -> None:
        """Raise unless the path that a session has taken is worth a program."""
        if not session.data.reads:
            return
        path = signature, outcomes_of(session.expressions)
        if self.compiled[signature] < _FIRST_PATHS or path in self.seen:
            return
        self.note(path)
        self.new_sizes += session.data.has_sizes
        self.new_paths += 1
        if self.new_paths >= _MOST_NEW_PATHS:
            self.is_on = False
        session.is_passing = True
        raise NotWholeError(f"a path is taken for the first time: {session.data.reads[-1]}")

    def note(self, path: Any) -> None:
        """Note that a path was taken."""
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen[path] = None

    def add(
        self, signature: Any, captured: Captured, known: Sequence[Variant], limit: int | None,
        arena: SharedArena, on_disk: bool,
    ) -> list[Variant]:  # fmt: skip
        """Compile the stages of a path; returns the variants to be evicted for it."""
        assert captured.path is not None
        captured.path.memo = self.memo
        paths = [variant for variant in known if variant.captured.path is not None]
        compile_stages(captured.path, paths_of(paths), limit, arena, on_disk)
        self.compiled[signature] += 1
        self.new_paths = 0
        assert captured.effects is not None
        self.note((signature, outcomes_of(captured.effects.expressions)))
        if self.compiled.total() > _MOST_COMPILED:
            self.is_on = False
        self.sized += captured.has_sizes
        return paths[: max(len(paths) + 1 - MOST_PATHS, 0)]


def outcomes_of(expressions: Expressions) -> tuple[tuple[type, int], ...]:
    """The outcomes that a call is guarded on, which tell its path."""
    return tuple([expected for _, expected in expressions.guards])


def paths_of(variants: Sequence[Variant]) -> list[Path]:
    return [v.captured.path for v in variants if v.captured.path is not None]


def same_path(
    variants: Sequence[Variant], captured: Captured, data: Sequence[object]
) -> Variant | None:
    """The variant that is for a captured call too: of the same path, with guards that hold."""
    if captured.path is None:
        return None
    for variant in variants:
        is_same = variant.captured.path is not None and variant.guards.hold()
        if (
            is_same
            and difference(variant.captured, captured) is None
            and variant.is_for_calls(data)
        ):
            return variant
    return None
