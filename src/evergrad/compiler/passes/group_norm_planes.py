"""Group norm over planes: one iteration space for norms over groups of channels.

A group norm views an image [N, C, ...] as [N, G, rest], reduces over the rest and views the result
as an image again; the elementwise ops after it run over images, and its derivative reduces over
samples and pixels. Loops over the two shapes do not fuse. This pass expresses both over [N, G, C /
G, ...], and reductions over groups or channels as reductions over planes (one channel of one
sample), which leave few numbers to reduce: everything then fuses into loops of one kind.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.compiler.passes.rewriter import rewrite, specialize
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.fusibility import is_elementwise
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.creation.constants import FULL
from evergrad.ops.rows.elementwise.basic import DIV, MUL, SUB
from evergrad.ops.rows.movement.views import EXPAND, RESHAPE
from evergrad.ops.rows.reduce.sums import SUM

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# Smaller planes and images stay as they are: one more kernel takes longer.
_LEAST_PLANE = 512
_LEAST = 1 << 16


class _Split(NamedTuple):
    """The shape of an image, the same in groups, and the common refinement of both."""

    image: Shape
    groups: int

    @property
    def grouped(self) -> Shape:
        return (*self.image[:1], self.groups, prod(self.image[1:]) // self.groups)

    @property
    def fine(self) -> Shape:
        samples, channels, *pixels = self.image
        return (samples, self.groups, channels // self.groups, *pixels)

    @property
    def planes(self) -> tuple[int, ...]:
        """The dimensions of a plane."""
        return tuple(range(3, len(self.fine)))

    def shape_of(self, given: Shape, whole: Shape) -> Shape:
        """The fine shape of an operand that broadcasts with an image, or with one in groups."""
        split, parts = (2, self.fine[2:]) if whole == self.grouped else (1, self.fine[1:3])
        place = split - (len(whole) - len(given))
        if place < 0:
            return given
        found = parts if given[place] != 1 else (1,) * len(parts)
        return (*given[:place], *found, *given[place + 1 :])

    def dims_of(self, dims: tuple[int, ...], whole: Shape) -> tuple[int, ...]:
        """The fine dimensions of some dimensions of ``whole``."""
        if whole == self.grouped:
            places: list[tuple[int, ...]] = [(0,), (1,), (2, *self.planes)]
        else:
            places = [(0,), (1, 2), *((d,) for d in self.planes)]
        return tuple(fine for d in dims for fine in places[d])


def group_norm_planes(graph: Graph) -> Graph:
    """The graph with norms over groups of channels, and their neighbours, over planes."""
    splits = _splits(graph)
    if not splits:
        return graph
    return rewrite(graph, _Planes(graph, splits).replace)


def _splits(graph: Graph) -> dict[Shape, _Split]:
    """The images that are viewed and reduced in groups: by both shapes."""
    found: dict[Shape, _Split] = {}
    reduced = {
        eqn.args[0].type.shape for eqn in graph.equations
        if eqn.op is SUM and eqn.attrs["dims"] == (2,)
    }  # fmt: skip
    for eqn in graph.equations:
        if eqn.op is not RESHAPE or len(eqn.args[0].type.shape) < 3:
            continue
        image, grouped = eqn.args[0].type.shape, eqn.outs[0].type.shape
        if len(grouped) != 3 or grouped not in reduced or image[0] != grouped[0]:
            continue
        if not prod(image):
            continue
        split = _Split(image, grouped[1])
        if image[1] % grouped[1] or split.grouped != grouped or image[1] == grouped[1]:
            continue
        is_large = prod(image[2:]) >= _LEAST_PLANE and prod(image) >= _LEAST
        if is_large and image not in found and grouped not in found:
            found[image] = found[grouped] = split
    return found


class _Planes:
    """Rewrites equations over images, or images in groups, to the fine shape."""

    def __init__(self, graph: Graph, splits: dict[Shape, _Split]) -> None:
        self.splits = splits
        self.values = DefUse(graph)
        # Values in fine shape, by their view in the original shape.
        self.fine: dict[Var, Tensor] = {}
        self.deviations: dict[tuple[Var, Var], tuple[Tensor, Tensor]] = {}

    def replace(self, trace: Trace, eqn: Equation, args: tuple[object, ...], env: object) -> Any:
        is_reduction = eqn.op.combine is not None
        shaped = eqn.args[0] if is_reduction else eqn.outs[0]
        split = self.splits.get(shaped.type.shape) if isinstance(shaped, Var) else None
        if split is None or not self.can_be_fine(eqn):
            return None
        whole = shaped.type.shape
        given = [self.fine_of(a, split, whole) if isinstance(a, Var) else a for a in args]
        if any(a is None for a in given):
            return None
        values: Leaves = [a._value if isinstance(a, Tensor) else a for a in given]
        if is_reduction:
            return self.reduced(eqn, _tensor(values[0]), split, whole, env)
        if eqn.op is RESHAPE:
            made = values[0]
            if made.type.shape != split.fine:
                return None
        else:
            attrs = {**eqn.attrs, "shape": split.fine} if eqn.op is EXPAND else eqn.attrs
            layout = eqn.op.eval(values[0].layout, **attrs) if eqn.op.alias else None
            specialization = specialize(eqn.op, *values, **attrs)
            (made,) = trace.emit(specialization, tuple(values), eqn.location, layout)
        result = _tensor(made).reshape(whole)._value
        self.fine[result] = _tensor(made)
        return (result,)

    def can_be_fine(self, eqn: Equation) -> bool:
        """Whether an equation is elementwise, a sum, or a view of the same elements in order."""
        if eqn.op in (RESHAPE, EXPAND, SUM):
            return True
        return eqn.op is not FULL and is_elementwise(self.values, eqn)

    def fine_of(self, var: Var, split: _Split, whole: Shape) -> Tensor | None:
        """A value in fine shape, if its layout allows the view."""
        if var in self.fine and var.type.numel == prod(whole):
            return self.fine[var]
        shape = split.shape_of(var.type.shape, whole)
        try:
            np.reshape(var.layout, shape, copy=False)
        except ValueError:
            return None
        given = _tensor(var)
        return given if shape == var.type.shape else given.reshape(shape)

    # -- reductions -----------------------------------------------------------------------------

    def reduced(self, eqn: Equation, x: Tensor, split: _Split, whole: Shape, env: object) -> Any:
        """A sum as one over planes and one over the planes' sums."""
        dims = split.dims_of(eqn.attrs["dims"], whole)
        others = tuple(d for d in dims if d not in split.planes)
        if len(dims) - len(others) < len(split.planes):
            return None
        if len(dims) == len(split.fine):
            total = x.sum(dims, True)
        else:
            deviations = self.deviations_of(eqn, split, env)
            total = x.sum(split.planes, True) if deviations is None else deviations
            total = total.sum(others, True) if others else total
        return (total.reshape(eqn.outs[0].type.shape)._value,)

    def deviations_of(self, eqn: Equation, split: _Split, env: Any) -> Tensor | None:
        """Sums over planes that add up to a group's sum of deviations from its mean, or of their
        squares: deviations from the plane's mean, and of the planes' means from the group's."""
        maker = self.values.producer
        centered = squared = maker.get(eqn.args[0])
        is_square = squared is not None and squared.op is MUL and squared.args[0] is squared.args[1]
        if squared is not None and is_square:
            centered = maker.get(squared.args[0])
        if centered is None or centered.op is not SUB:
            return None
        x, average = centered.args
        if not isinstance(x, Var) or not self.is_mean(average, x, eqn.attrs["dims"]):
            return None
        count = prod(split.image[2:])
        apart, between = self.split_deviations(env[x], env[average], split, count)
        if is_square:
            apart, between = apart * apart, between * between
        total: Tensor = apart.sum(split.planes, True) + between * count
        return total

    def split_deviations(
        self, x: Var, average: Var, split: _Split, count: int
    ) -> tuple[Tensor, Tensor]:
        """Deviations from the plane's mean, and of the planes' means from the group's; the same
        values at every call."""
        if (x, average) not in self.deviations:
            fine = self.fine_of(x, split, split.grouped)
            of_group = self.fine_of(average, split, split.grouped)
            assert fine is not None and of_group is not None
            of_plane = fine.sum(split.planes, True) / count
            self.deviations[x, average] = fine - of_plane, of_plane - of_group
        return self.deviations[x, average]

    def is_mean(self, average: object, x: Var, dims: tuple[int, ...]) -> bool:
        """Whether a value is the mean over these dimensions."""
        divided = self.values.producer.get(average) if isinstance(average, Var) else None
        if divided is None or divided.op is not DIV:
            return False
        total = self.values.producer.get(divided.args[0])
        count = prod(x.type.shape[d] for d in dims)
        return (
            total is not None
            and total.op is SUM
            and total.args[0] is x
            and total.attrs["dims"] == dims
            and total.attrs["keepdim"]
            and divided.args[1] == count
        )


def _tensor(var: Var) -> Tensor:
    return fresh(var, var.type)
