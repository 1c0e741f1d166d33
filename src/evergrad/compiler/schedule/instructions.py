"""What a program is made of: places in memory, native kernels, and instructions that join them."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.schedule.memory_plan import Buffer
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Var


class Walk(NamedTuple):
    """How a loop kernel goes through its space: ``total`` units (rows, or elements) of so many
    elements each, and in a chunk as many units as the number at ``per_chunk`` says. What it reads
    through the pointers ``in_order`` lies in the order of the units."""

    unit: int
    total: int
    per_chunk: int
    in_order: frozenset[int]


class Kernel:
    """Native code and what it is called with.

    ``slots`` name the pointers it takes, in order: a value that is read or written, the partial
    results of one, or the word that tells of failures. ``numbers`` follow them.
    """

    def __init__(self, code: Code, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.helpers = code.helpers
        self.slots: list[tuple[str, Any]] = []
        self.numbers: list[int] = []
        self.chunks = 1
        self.scratch = 0
        # Numbers that are addresses in this process, by their places: of the product of OpenBLAS
        # for the element type of this name.
        self.products: dict[int, str] = {}
        # Numbers that are addresses of other kernels, which this one calls.
        self.calls: dict[int, Kernel] = {}
        self.walk: Walk | None = None
        self.passes = 1  # how often it goes over its elements
        # Late results: (value, how it folds, elements of one partial result).
        self.partials: list[tuple[Var, str, int]] = []


class Place:
    """A value in a buffer."""

    __slots__ = ("buffer", "dtype", "offset", "shape", "strides")

    def __init__(
        self,
        buffer: Buffer,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        found: Any,
    ) -> None:
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = found

    @property
    def nbytes(self) -> int:
        """The bytes of the value by itself."""
        return prod(self.shape) * int(self.dtype.itemsize)


class Instruction:
    """One kernel with its arguments, or one call of a NumPy evaluation.

    ``unit`` is what it was made of (``None`` for a copy at the end); ``may_fail`` says that it may
    end the program with an error, so that nothing outside must have been written by then.
    """

    __slots__ = (
        "args", "eqn", "kernel", "label", "may_fail", "outs", "pointers", "reads", "unit", "work",
        "writes",
    )  # fmt: skip

    def __init__(self, label: str) -> None:
        self.label = label
        self.kernel: Kernel | None = None
        self.pointers: list[Place | None] = []  # None: the word that tells of failures
        self.eqn: Equation | None = None
        self.args: list[Any] = []
        self.outs: list[Place] = []
        self.reads: list[Buffer] = []
        self.writes: list[Buffer] = []
        self.work = 0
        self.unit: Any = None
        self.may_fail = False


def strides_of(var: Var) -> tuple[int, ...]:
    """The strides in bytes of a value that lies in order."""
    size = var.type.dtype.itemsize
    return tuple(s * size for s in contiguous_strides(var.type.shape))


def whole(buffer: Buffer, var: Var) -> Place:
    """A value that fills a buffer."""
    return Place(buffer, 0, var.type.shape, strides_of(var), var.type.dtype)


def address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])
