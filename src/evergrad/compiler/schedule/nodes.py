"""Schedule nodes: fusion groups and single equations."""

from __future__ import annotations

from collections.abc import Sequence

from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Var


class ScheduleNode:
    """A node of the schedule. ``dependencies`` is the transitive bit set of the nodes that run
    before it; ``position`` that of its last equation in the graph."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.bit: int = 1 << number
        self.dependencies = 0
        self.position = 0

    @property
    def equations(self) -> list[Equation]:
        raise NotImplementedError


class SingleNode(ScheduleNode):
    """One equation that is not fused."""

    def __init__(self, number: int, eqn: Equation) -> None:
        super().__init__(number)
        self.eqn = eqn

    @property
    def equations(self) -> list[Equation]:
        return [self.eqn]


class Group(ScheduleNode):
    """A fusion group: equations over one iteration domain, which become one loop nest.

    The ``inner`` dimensions form the inner loops, all others the outer ones; ``None`` if no member
    distinguishes them. An index map gives, for each dimension of a value, the dimension of the
    domain along which it runs (-1: none).
    """

    def __init__(self, number: int, shape: Shape) -> None:
        super().__init__(number)
        self.shape = shape
        self.members: list[Equation] = []
        # The index map of each value, and for each member (by ``id``) that of its domain.
        self.axes: dict[Var, tuple[int, ...]] = {}
        self.maps: dict[int, tuple[int, ...]] = {}
        self.inner: frozenset[int] | None = None
        # Results of reductions over outer dimensions: complete only after the kernel.
        self.outer_reductions: set[Var] = set()
        # The number of equal blocks of outer iterations; outer reductions cover one block each.
        self.blocks = 1
        self.reads: set[Var] = set()
        # The matrix product of which it is the epilogue.
        self.product: Equation | None = None

    @property
    def equations(self) -> list[Equation]:
        return self.members

    @property
    def dims(self) -> frozenset[int]:
        """The dimensions of the domain of an extent other than 1."""
        return frozenset(d for d, n in enumerate(self.shape) if n != 1)

    def varying(self, axes: Sequence[int]) -> frozenset[int]:
        """The dimensions along which a value with this index map varies."""
        return frozenset(a for a in axes if a >= 0 and self.shape[a] != 1)
