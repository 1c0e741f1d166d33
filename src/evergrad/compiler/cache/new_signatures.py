"""Signatures that are new at nearly every call: a program is planned for one that recurs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from evergrad.compiler.cache.signature_churn import MANY_SHAPES
from evergrad.core.trace import Graph, Var

# The most signatures for which a program is planned at once, and how often others have to recur.
_AT_ONCE = MANY_SHAPES
_RECURS = 4
# As many signatures without a program are remembered.
_MOST_REMEMBERED = 4096
# To plan an equation takes longer than to compute so many elements a few times.
SMALL_ELEMENTS = 1 << 18

REASON = "the arguments have shapes or values that are new at nearly every call, and are small"


class NewSignatures:
    """How often the signatures of a function occur, once many of them had programs.

    A cache of keys that grows with each token has another shape at each call: to plan a program
    takes many times as long as to run such a call by Python. Counted are calls, not times, so that
    runs repeat to the bit.
    """

    __slots__ = ("are_small", "count", "seen")

    def __init__(self) -> None:
        # For how many signatures a program was planned, and whether the last one is small.
        self.count: int = 0
        self.are_small: bool = False
        # How often those without a program have occurred.
        self.seen: OrderedDict[int, int] = OrderedDict()

    def note_program(self, key: Hashable, graph: Graph) -> None:
        """A program was planned for a signature that had none."""
        self.count += 1
        self.are_small = is_small(graph)
        self.seen.pop(hash(key), None)

    def is_rare(self, key: Hashable) -> bool:
        """Count a call of a signature without a program; whether Python runs it."""
        if self.count < _AT_ONCE or not self.are_small:
            return False
        number = hash(key)
        count = self.seen.pop(number, 0) + 1
        self.seen[number] = count
        if len(self.seen) > _MOST_REMEMBERED:
            self.seen.popitem(last=False)
        return count < _RECURS


def is_small(graph: Graph) -> bool:
    """Whether the equations of a program read and compute few elements on average."""
    sizes = [
        max(
            (held.type.numel for held in (*eqn.outs, *eqn.args) if isinstance(held, Var)), default=0
        )
        for eqn in graph.equations
    ]
    return sum(sizes) < SMALL_ELEMENTS * len(sizes)
