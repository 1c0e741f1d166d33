"""Epilogues: elementwise equations that a kernel applies to its results before others read them.

An :class:`Epilogue` is a description: equations over one tile of a kernel's output, operands with
their index maps against the tile, and what is stored. It has no loops of its own. Kernels that hold
results in registers emit it there (:meth:`Epilogue.emit`); those that share one function among all
shapes call a function of tiles (:mod:`.codegen.epilogue_tiles`) while the tile is in cache.

:func:`epilogue_of` makes one of the accesses of a fusion group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise_lanes import emit_lanes, has_lanes
from evergrad.compiler.codegen.loop_accesses import NO_SLOT, Access, Factor, LoopAccesses
from evergrad.core.dtypes import dtype
from evergrad.core.op import Op
from evergrad.core.trace import Var
from evergrad.core.types import Array

if TYPE_CHECKING:
    from evergrad.compiler.schedule.nodes import Group
    from evergrad.core.types import Leaves

# Longer epilogues are loops of their own.
MOST_STEPS = 16


class Along(Enum):
    """The index map of an operand: along which dimensions of a tile it runs."""

    FULL = "row, column"
    COLUMN = "column"
    ROW = "row"
    SCALAR = ""

    @property
    def by_column(self) -> bool:
        return self in (Along.FULL, Along.COLUMN)


class Operand(NamedTuple):
    """What an epilogue reads beside the tile."""

    dtype: dtype
    along: Along


class Source(NamedTuple):
    """An operand of a step: a ``value`` (0 is the tile, n the result of step n), an ``operand`` or
    a ``factor``, by number; a ``number``, or one as IR (a ``constant``)."""

    kind: str
    what: Any

    def __str__(self) -> str:
        if self.kind == "value":
            return f"%{self.what}"
        return f"{self.kind} {self.what}" if self.kind in ("operand", "factor") else str(self.what)


class Step(NamedTuple):
    """An elementwise op with its element types and attributes, and where its operands are."""

    op: Op
    types: tuple[dtype, ...]
    out: dtype
    attrs: tuple[tuple[str, Any], ...]
    sources: tuple[Source, ...]

    def __str__(self) -> str:
        given = ", ".join([*map(str, self.sources), *(f"{n}={v}" for n, v in self.attrs)])
        types = ", ".join(t.name for t in self.types)
        return f"{self.op.name}({given}): ({types}) -> {self.out.name}"


class Epilogue(NamedTuple):
    """Elementwise equations on a tile of elements of type ``source``; values that are ``stored``,
    by number, and literal factors that are arguments, by IR type. ``blocks``: operands may run
    along blocks of rows, or along the rows of a block."""

    source: dtype
    operands: tuple[Operand, ...]
    factors: tuple[str, ...]
    steps: tuple[Step, ...]
    stored: tuple[int, ...]
    blocks: bool = False

    def __str__(self) -> str:
        lines = [f"%0: {self.source.name} tile[row, column]"]
        for n, operand in enumerate(self.operands):
            lines.append(f"operand {n}: {operand.dtype.name} load[{operand.along.value}]")
        lines += [f"%{n} = {step}" for n, step in enumerate(self.steps, 1)]
        lines += [f"store %{n}[row, column]" for n in self.stored]
        return "\n".join(lines)

    def __repr__(self) -> str:
        given = [f"{o.dtype.name}[{o.along.value}]" for o in self.operands]
        return f"({', '.join(given)}) -> {', '.join(map(str, self.steps))}"

    def dtype_of(self, value: int) -> dtype:
        """The element type of a value."""
        return self.steps[value - 1].out if value else self.source

    def emit(
        self, code: Code, lanes: int, tile: str,
        operand: Callable[[int], str], factor: Callable[[int], str],
    ) -> list[str]:  # fmt: skip
        """Registers of all values, the first being the ``tile``. ``operand`` and ``factor`` give
        registers in computing types."""
        values, known = [tile], dict[Source, str]()
        read = {"operand": operand, "factor": factor}

        def emitted(source: Source, found: dtype) -> str:
            if source.kind == "number":
                return elementwise.constant(source.what, found)
            if source.kind == "value":
                number: int = source.what
                return values[number]
            if source not in known:
                is_read = source.kind in read
                known[source] = read[source.kind](source.what) if is_read else str(source.what)
            return known[source]

        for step in self.steps:
            given = [emitted(s, t) for s, t in zip(step.sources, step.types, strict=True)]
            values.append(
                emit_lanes(code, lanes, step.op, step.types, step.out, dict(step.attrs), given)
            )
        return values

    def evaluate(self, tile: Array, operands: Sequence[Array]) -> Array:
        """The last value, by NumPy."""
        values: Leaves = [tile]
        given = {"value": values, "operand": operands}
        for step in self.steps:
            args = [
                np.asarray(given[s.kind][s.what] if s.kind in given else s.what, t.np)
                for s, t in zip(step.sources, step.types, strict=True)
            ]
            values.append(np.asarray(step.op.eval(*args, **dict(step.attrs)), step.out.np))
        found: Array = values[-1]
        return found


# -- of a fusion group --------------------------------------------------------------------------

# Strides in bytes, from block to block of rows and from row to row.
Strides = tuple[int, int]


class Placed(NamedTuple):
    """An epilogue with its operands and results. ``period`` is the number of rows of a block."""

    epilogue: Epilogue
    read: list[tuple[Var, Strides]]
    written: list[tuple[Var, Strides]]
    factors: list[int]
    period: int


def is_elementwise(group: Group) -> bool:
    """Whether a fusion group is elementwise over its domain, by rows that have lanes."""
    if group.inner is not None or group.outer_reductions or len(group.members) > MOST_STEPS:
        return False
    return all(has_lanes(eqn.op) for eqn in group.members)


def epilogue_of(accesses: LoopAccesses, tile: Var, columns: int) -> Placed | None:
    """An elementwise fusion group as an epilogue of a matrix with so many columns, in blocks of as
    many rows as operands need. ``None`` if its domain is not the matrix, or if an operand has
    another index map than those of tiles."""
    rows = tile.type.numel // columns
    for split, block in _splits(accesses.group.shape, rows, columns):
        placed = _Builder(accesses, tile, split, block).placed()
        if placed is not None:
            return placed
    return None


def _splits(shape: Sequence[int], rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """The first dimensions of a domain that run along the columns, and along the rows of a
    block."""
    for split in range(len(shape) + 1):
        if (prod(shape[:split]), prod(shape[split:])) == (rows, columns):
            for block in range(split + 1):
                yield split, block
            return


class _Builder:
    def __init__(self, accesses: LoopAccesses, tile: Var, split: int, block: int) -> None:
        self.accesses = accesses
        self.tile = tile
        self.parts: tuple[slice, ...] = slice(block), slice(block, split), slice(split, None)
        shape = accesses.group.shape
        self.blocks, self.rows, self.columns = (prod(shape[part]) for part in self.parts)
        self.operands: list[Operand] = []
        self.read: list[tuple[Var, Strides]] = []
        self.known: dict[int, Source] = {}  # by the ``id`` of an access
        self.factors: list[Factor] = []

    def placed(self) -> Placed | None:
        accesses, steps = self.accesses, []
        numbers = {e.outs[0]: n for n, e in enumerate(accesses.group.members, 1)}
        for eqn in accesses.group.members:
            sources = [self.source(use, numbers) for use in accesses.operands(eqn)]
            made = eqn.specialization
            types = tuple(t.dtype for t in made.operands)
            given = tuple(source for source in sources if source is not None)
            if len(given) < len(sources):
                return None
            attrs = tuple(sorted(eqn.attrs.items()))
            steps.append(Step(eqn.op, types, made.out_types[0].dtype, attrs, given))
        written: list[tuple[Var, Strides]] = []
        for var, access in accesses.stores.items():
            strides = self.strides(access)
            if strides is None or strides[2] != access.dtype.itemsize:
                return None
            written.append((var, strides[:2]))
        stored = tuple(numbers[var] for var, _ in written)
        epilogue = Epilogue(
            self.tile.type.dtype, tuple(self.operands), tuple(f.type for f in self.factors),
            tuple(steps), stored, self.blocks > 1,
        )  # fmt: skip
        factors = [factor.bits for factor in self.factors]
        return Placed(epilogue, self.read, written, factors, self.rows)

    def source(self, use: object, numbers: dict[Var, int]) -> Source | None:
        if isinstance(use, str):
            return Source("constant", use)
        if isinstance(use, Var):
            return Source("value", numbers[use])
        if isinstance(use, Factor):
            self.factors.append(use)
            return Source("factor", len(self.factors) - 1)
        assert isinstance(use, Access)
        if id(use) not in self.known:
            found = self.operand(use)
            if found is None:
                return None
            self.known[id(use)] = found
        return self.known[id(use)]

    def operand(self, access: Access) -> Source | None:
        """The tile itself, or a further operand."""
        strides = self.strides(access)
        if strides is None or access.slot == NO_SLOT or access.lookup is not None:
            return None
        size = access.dtype.itemsize
        block, row, column = strides
        var: Var = self.accesses.slots[access.slot][1]
        if self.accesses.values.root(var) is self.tile:
            is_whole = column == size and var.type.numel == self.tile.type.numel
            is_contiguous = row == self.columns * size and block == row * self.rows
            return Source("value", 0) if is_whole and is_contiguous else None
        if column not in (0, size):
            return None
        along = {(True, True): Along.FULL, (False, True): Along.COLUMN, (True, False): Along.ROW}
        by_row = bool(row or block)
        self.operands.append(Operand(access.dtype, along.get((by_row, bool(column)), Along.SCALAR)))
        self.read.append((var, (block, row)))
        return Source("operand", len(self.operands) - 1)

    def strides(self, access: Access) -> tuple[int, int, int] | None:
        """The strides along blocks, rows and columns, where dimensions collapse to these. Along a
        single row or column, those of a contiguous matrix, unless there is one element."""
        shape, own = self.accesses.group.shape, access.strides
        found = []
        for part in self.parts:
            stride = collapsed_stride(shape[part], own[part])
            if stride is None:
                return None
            found.append(stride)
        block, row, column = found
        if not any(found):
            return 0, 0, 0
        if self.columns == 1:
            column = access.dtype.itemsize
        if self.rows == 1:
            row = self.columns * column
        if self.blocks == 1:
            block = self.rows * row
        return block, row, column


def collapsed_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of dimensions that are traversed like one; ``None`` if they are not."""
    step, extent = None, 1
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count == 1:
            continue
        if step is not None and stride != step * extent:
            return None
        step = stride if step is None else step
        extent *= count
    return step or 0
