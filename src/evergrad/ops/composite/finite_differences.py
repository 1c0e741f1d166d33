"""The slopes of sampled functions: ``gradient``, a composite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.shapes import normalize_dims
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.slices import slice_dim
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.surface.public import NUMBERS, expose

if TYPE_CHECKING:
    pass


def _spacings(spacing: object, input: Tensor, dim: Any) -> tuple[tuple[int, ...], list[object]]:
    """The dimensions to go along, and for each a step or the coordinates."""
    dims = normalize_dims(() if dim is None else dim, input.ndim)
    if spacing is None or spacing.__class__ in NUMBERS:
        return dims, [1 if spacing is None else spacing] * len(dims)
    given = list(spacing) if isinstance(spacing, Sequence) else [spacing]
    if len(given) != len(dims):
        wanted = (
            f"'self.dim() = {input.ndim}', since dim argument was not given"
            if dim is None
            else f"'dim = {len(dims)}'"
        )
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"equal to {wanted}, but got a list of length {len(given)}"
        )
    for step in given:
        if isinstance(step, Tensor) and step.device != input.device:
            raise RuntimeError(
                "torch.gradient expected each tensor to be on the same device, but got devices "
                f"{input.device} and {step.device}"
            )
    return dims, given


def _steps(step: object, x: Tensor, dim: int) -> tuple[Any, Any, Any, Any]:
    """The distances to the left and right of inner points, and the first and last two."""
    if not isinstance(step, Tensor) or not step.ndim:
        return step, step, (step, step), (step, step)
    extent = x._type.shape[dim]
    if step._type.shape != (extent,):
        raise RuntimeError(
            f"torch.gradient expected the coordinates of dimension {dim} to be a vector of "
            f"{extent} elements, but got a tensor of shape {list(step._type.shape)}"
        )
    apart = step[1:] - step[:-1]
    inner = reshape(apart, (extent - 1,) + (1,) * (x.ndim - 1 - dim))
    left, right = slice_dim(inner, 0, 0, extent - 2), slice_dim(inner, 0, 1, extent - 1)
    return left, right, (apart[0], apart[1 % (extent - 1)]), (apart[-1], apart[-2 % (extent - 1)])


def _edge(near: Tensor, next: Tensor, third: Tensor | None, steps: tuple[int, int]) -> Tensor:
    """The slope at an end, going inwards: by two points or, with a third, by a parabola."""
    h, further = steps
    if third is None:
        return (next - near) / h
    both = h + further
    return (
        near * (-(both + h) / (h * both))
        + next * (both / (h * further))
        - third * (h / (further * both))
    )


def _along(x: Tensor, dim: int, step: object, edge_order: int) -> Tensor:
    extent = x._type.shape[dim]
    left, right, first, last = _steps(step, x, dim)

    def at(begin: int, end: int) -> Tensor:
        return slice_dim(x, dim, begin, end)

    def point(i: int) -> Tensor:
        return at(i, i + 1)

    before, here, after = at(0, extent - 2), at(1, extent - 1), at(2, extent)
    if isinstance(left, Tensor) and left.ndim:
        inner = (
            after * (left / (right * (left + right)))
            + here * ((right - left) / (left * right))
            - before * (right / (left * (left + right)))
        )
    else:
        inner = (after - before) / (left * 2)
    thirds = (point(2), point(extent - 3)) if edge_order == 2 else (None, None)
    start = _edge(point(0), point(1), thirds[0], first)
    end = -_edge(point(extent - 1), point(extent - 2), thirds[1], last)
    return cat([start, inner, end], dim)


@expose(method=False, out=False, numpy_names=True)
def gradient(
    input: Tensor, *, spacing: object = None, dim: object = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The slopes of a function given by samples, along each dimension: central differences inside,
    one-sided ones at the ends. ``spacing`` gives steps or coordinates."""
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims, spacings = _spacings(spacing, input, dim)
    if any(input._type.shape[d] <= edge_order for d in dims):
        raise RuntimeError(
            "torch.gradient expected each dimension size to be at least edge_order+1"
        )
    return tuple(_along(input, d, step, edge_order) for d, step in zip(dims, spacings, strict=True))
