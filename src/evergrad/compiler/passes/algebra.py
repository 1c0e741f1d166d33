"""Algebraic identities: equations whose result is an argument, or one ``cat`` of many parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.op import Op
from evergrad.core.shapes import reduced_shape, tensor_type
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.ops.rows.creation.constants import FULL
from evergrad.ops.rows.elementwise.basic import ADD, CAST, CLONE, MUL
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import PAD_SLICE
from evergrad.ops.rows.movement.views import PERMUTE, RESHAPE, permute, reshape
from evergrad.ops.rows.reduce.sums import SUM
from evergrad.ops.surface.handles import DETACH
from evergrad.ops.surface.view_forms import UPDATE

if TYPE_CHECKING:
    from evergrad.core.types import DtypeLike
    from evergrad.core.views import ViewChain

# For an op: a function of the arguments that returns the replacement, or ``None`` to keep it.
Rule = Callable[..., Any]
IDENTITIES: dict[Op, Rule] = {}


def identity(row: Op) -> Callable[[Rule], Rule]:
    """Register a rule for an op."""

    def enter(rule: Rule) -> Rule:
        IDENTITIES[row] = rule
        return rule

    return enter


def ones_of(graph: Graph) -> set[object]:
    """The values that hold nothing but ones, such as the cotangent of a sum."""
    found: set[Any] = set()
    for eqn in graph.equations:
        is_view = eqn.op.alias and eqn.args[0] in found
        # The imaginary part of a complex one is none.
        is_view = is_view and eqn.outs[0].type.dtype is eqn.args[0].type.dtype
        if is_view or (eqn.op is FULL and eqn.args[0] == 1):
            found.update(eqn.outs)
    return found


@identity(DETACH)
def _detach(x: Tensor) -> Tensor:
    return x


@identity(CLONE)
def _clone(x: Tensor) -> Tensor | None:
    """A copy of a contiguous value is the value itself: values are never overwritten."""
    return x if x.layout_array().flags.c_contiguous else None


@identity(CAST)
def _cast(x: Tensor, dtype: DtypeLike) -> Tensor | None:
    return x if x.dtype is dtype else None


@identity(MUL)
def _mul(a: object, b: object) -> Tensor | None:
    if isinstance(a, Tensor) and not isinstance(b, Tensor) and b == 1:
        return a
    return b if isinstance(b, Tensor) and not isinstance(a, Tensor) and a == 1 else None


@identity(SUM)
def _sum(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor | None:
    """A reduction over dimensions of extent 1."""
    if any(x.shape[d] != 1 for d in dims):
        return None
    return reshape(x, reduced_shape(x._type.shape, dims, keepdim))


@identity(UPDATE)
def _update(base: Tensor, value: Tensor, chain: ViewChain) -> Tensor | None:
    """An update through permutations and reshapes that overwrites its whole base."""
    shapes = [base._type.shape]
    for op, attrs in chain.ops:
        if op not in (PERMUTE, RESHAPE):
            return None
        shapes.append(op.type(tensor_type(shapes[-1], base.dtype), **attrs).shape)
    if value._type.shape != shapes.pop():
        return None
    for op, attrs in reversed(chain.ops):
        before = shapes.pop()
        if op is PERMUTE:
            value = permute(value, [attrs["order"].index(d) for d in range(len(before))])
        else:
            value = reshape(value, before)
    return value


class SumOfSlices:
    """Finds sums of ``pad_slice`` whose slices tile one dimension (the derivative of ``split``)
    and replaces them by one ``cat``."""

    def __init__(self) -> None:
        self.parts: dict[Var, list[tuple[Any, Var]]] = {}

    def replace(self, trace: Trace, eqn: Equation, args: Args) -> Sequence[Var] | None:
        if eqn.op is PAD_SLICE:
            part = trace.emit(eqn.specialization, args, eqn.location)
            slices = _for_every_dim(eqn.attrs["slices"], part[0].type.shape)
            self.parts[part[0]] = [(slices, args[0])]
            return part
        if eqn.op is not ADD or not all(isinstance(a, Var) and a in self.parts for a in args):
            return None
        shape = eqn.outs[0].type.shape
        if any(a.type.shape != shape for a in args):
            return None
        parts = self.parts[args[0]] + self.parts[args[1]]
        dim = _sliced_dim([slices for slices, _ in parts], shape)
        if dim is None:
            return None
        parts.sort(key=lambda part: part[0][dim][0])
        ends = [0, *(slices[dim][1] for slices, _ in parts)]
        if any(slices[dim][0] < end for (slices, _), end in zip(parts, ends, strict=False)):
            return None
        if sum(s[dim][1] - s[dim][0] for s, _ in parts) < shape[dim]:
            outs: Sequence[Var] = trace.emit(eqn.specialization, args, eqn.location)
            self.parts[outs[0]] = parts
            return outs
        pieces = [
            reshape(fresh(v, v.type), tuple(end - start for start, end, _ in slices))
            for slices, v in parts
        ]
        return (cat(pieces, dim)._value,)


def _for_every_dim(
    slices: tuple[int | tuple[int, int, int], ...], shape: tuple[int, ...]
) -> list[tuple[int, int, int]]:
    """(start, end, step) for every dimension; an index is a slice of length one."""
    explicit = [(s, s + 1, 1) if isinstance(s, int) else s for s in slices]
    return explicit + [(0, extent, 1) for extent in shape[len(explicit) :]]


def _sliced_dim(all_slices: Sequence[Any], shape: tuple[int, ...]) -> int | None:
    """The one dimension in which slices are shorter than the whole; ``None`` if there are more, or
    with a step other than 1."""
    dims = set()
    for slices in all_slices:
        if any(step != 1 for _, _, step in slices):
            return None
        dims |= {d for d, s in enumerate(slices) if (s[0], s[1]) != (0, shape[d])}
    return dims.pop() if len(dims) == 1 else None
