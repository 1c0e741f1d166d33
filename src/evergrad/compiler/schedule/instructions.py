"""Instructions of a program: kernel launches and NumPy calls over buffer views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.nodes import ScheduleNode
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


class Instruction:
    """A launch of one kernel with its arguments, or a call of the NumPy evaluation of an equation.

    ``node`` is the schedule node that it was lowered from (``None`` for a copy at the end).
    ``may_fail``: it may end the program with an error, so that no write to outside memory may
    precede it.
    """

    __slots__ = (
        "args", "eqn", "kernel", "label", "may_fail", "node", "outs", "pointers", "reads", "work",
        "writes",
    )  # fmt: skip

    def __init__(self, label: str) -> None:
        self.label: str = label
        self.kernel: Kernel | None = None
        self.pointers: list[BufferView | None] = []  # None: the status word
        self.eqn: Equation | None = None
        self.args: Leaves = []
        self.outs: list[BufferView] = []
        self.reads: list[Buffer] = []
        self.writes: list[Buffer] = []
        self.work: int = 0
        self.node: ScheduleNode | None = None
        self.may_fail: bool = False

    @property
    def argument_count(self) -> int:
        """The arguments of a kernel launch: pointers and numbers."""
        assert self.kernel is not None
        return len(self.pointers) + len(self.kernel.numbers)
