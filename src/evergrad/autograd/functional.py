"""``torch.autograd.functional``: products and matrices of derivatives of a function at a point."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.autograd.engine import grad as graph_grad
from evergrad.core.tensor import Tensor
from evergrad.func import derivatives
from evergrad.ops.rows.creation.constants import ones_like, zeros_like
from evergrad.ops.rows.movement.views import reshape

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _same_form(found: Any, like: object) -> object:
    return found[0] if isinstance(like, Tensor) else tuple(found)


def _prepared(inputs: object, create_graph: bool) -> tuple[Tensor, ...]:
    return tuple(i if create_graph else i.detach() for i in _tuple(inputs))


def _finished(value: Any, create_graph: bool) -> object:
    if create_graph:
        return value
    if isinstance(value, tuple):
        return tuple(_finished(v, create_graph) for v in value)
    return value.detach()


def _require_dependence(
    func: Callable[..., object],
    inputs: tuple[Tensor, ...],
    *,
    pairwise: bool = False,
    order: int = 1,
) -> None:
    """Raise if some input has no influence: on any output, on each output (``pairwise``), or on the
    first derivative (``order`` 2)."""
    leaves = tuple(i.detach().requires_grad_() for i in inputs)
    outputs, subject = _tuple(func(*leaves)), "function"
    if order == 2:
        (value,) = outputs
        first = graph_grad(value, leaves, create_graph=True, materialize_grads=True)
        outputs, subject = (sum((g * g).sum() for g in first),), "function's derivative"
    for group in [(o,) for o in outputs] if pairwise else [outputs]:
        live = [o for o in group if o.requires_grad]
        found: Any = (None,) * len(leaves)
        if live:
            found = graph_grad(live, leaves, live, retain_graph=True, allow_unused=True)
        if any(g is None for g in found):
            raise RuntimeError(
                f"The output of the user-provided {subject} is independent of input "
                f"{list(found).index(None)}. This is not allowed in strict mode."
            )


def vjp(
    func: Callable[..., object], inputs: object, v: Any = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """``(func(*inputs), vector-Jacobian product)``"""
    points = _prepared(inputs, create_graph)
    if strict:
        _require_dependence(func, points)
    output, pull = derivatives.vjp(func, *points)
    if v is None:
        if not isinstance(output, Tensor) or output.numel() != 1:
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single "
                "Tensor with a single element."
            )
        v = ones_like(output)
    found = pull(v if isinstance(output, Tensor) else tuple(v))
    return _finished(output, create_graph), _finished(_same_form(found, inputs), create_graph)


def jvp(
    func: Callable[..., object], inputs: object, v: object = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """``(func(*inputs), Jacobian-vector product)``"""
    points = _prepared(inputs, create_graph)
    if v is None:
        if len(points) != 1 or points[0].numel() != 1:
            raise RuntimeError(
                "The vector v can only be None if the input to the user-provided function is a "
                "single Tensor with a single element."
            )
        v = ones_like(points[0])
    output, moved = derivatives.jvp(func, points, _tuple(v), strict=strict)
    return _finished(output, create_graph), _finished(moved, create_graph)


def jacobian(
    func: Callable[..., object], inputs: object, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian of every output by every input."""
    points = _prepared(inputs, create_graph)
    if strict:
        _require_dependence(func, points, pairwise=True)
    numbers = tuple(range(len(points)))
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(
            f"Expected strategy to be 'reverse-mode' or 'forward-mode', got {strategy!r}"
        )
    transform = derivatives.jacrev if strategy == "reverse-mode" else derivatives.jacfwd
    found = transform(func, numbers)(*points)
    single_input = isinstance(inputs, Tensor)
    if single_input:
        several = isinstance(found, tuple) and found and isinstance(found[0], tuple)
        found = tuple(row[0] for row in found) if several else found[0]
    return _finished(found, create_graph)


def hessian(
    func: Callable[..., object], inputs: object, create_graph: bool = False, strict: bool = False,
    vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The second derivatives of a function that returns a single number."""
    points = _prepared(inputs, create_graph)
    numbers = tuple(range(len(points)))

    def scalar(*args: Tensor) -> Tensor:
        out = func(*args)
        if not isinstance(out, Tensor) or out.numel() != 1:
            raise RuntimeError(
                "The Tensor returned by the function given to hessian should contain a single "
                "element"
            )
        return reshape(out, ())

    if strict:
        _require_dependence(scalar, points, order=2)
    found = derivatives.hessian(scalar, numbers)(*points)
    if isinstance(inputs, Tensor):
        found = found[0][0]
    return _finished(found, create_graph)


def vhp(
    func: AnyFunction, inputs: object, v: object = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """``(func(*inputs), vector-Hessian product)``"""
    points = tuple(i.detach().requires_grad_() if not create_graph else i for i in _tuple(inputs))
    if strict:
        _require_dependence(func, points, order=2)
    output = func(*points)
    vectors = _tuple(v) if v is not None else None
    first = graph_grad(output, points, create_graph=True, materialize_grads=True)
    if vectors is None:
        vectors = tuple(ones_like(p) for p in points)
    live = [(g, w) for g, w in zip(first, vectors, strict=True) if g.requires_grad]
    if live:
        found = graph_grad([g for g, _ in live], points, [w for _, w in live],
                           create_graph=create_graph, materialize_grads=True)  # fmt: skip
    else:
        found = tuple(zeros_like(p) for p in points)
    return _finished(output, create_graph), _finished(_same_form(found, inputs), create_graph)


def hvp(
    func: Callable[..., object], inputs: object, v: object = None, create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """``(func(*inputs), Hessian-vector product)``; the Hessian is symmetric."""
    return vhp(func, inputs, v, create_graph, strict)
