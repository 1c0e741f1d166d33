"""Control flow as functions of functions: ``cond``, ``while_loop``, ``map``, ``scan`` and
``associative_scan``.

Eagerly these are Python's own branches and loops, so gradients of any order follow. In a compiled
function a predicate that is computed is read by Python, as in ``if``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_flatten, tree_leaves, tree_unflatten
from evergrad.core.vmap import vmap
from evergrad.ops.surface.public import FUNCTIONS as _F

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


def cond(
    pred: bool | int | float | Tensor,
    true_fn: Callable[..., object],
    false_fn: Callable[..., object],
    operands: tuple[object, ...] | list[object] = (),
) -> Any:
    """``true_fn(*operands)`` if the predicate holds, otherwise ``false_fn(*operands)``.

    Args:
        pred: a number, or a tensor of one element
        true_fn: a function of the operands
        false_fn: a function of the same form
        operands: tensors, or dictionaries, lists and tuples of tensors

    >>> x = eg.tensor([1.0, -2.0])
    >>> eg.cond(x.sum() > 0, lambda x: x, lambda x: -x, (x,))
    tensor([-1.,  2.])
    """
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or not all(
        isinstance(leaf, (Tensor, int, float)) for leaf in tree_leaves(operands)
    ):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists "
            f"of tensor leaves, but got {operands}."
        )
    return (true_fn if pred else false_fn)(*operands)


def while_loop(
    cond_fn: Callable[..., object],
    body_fn: Callable[..., object],
    carried_inputs: tuple[object, ...] | list[object],
) -> Any:
    """``carried = body_fn(*carried)`` while ``cond_fn(*carried)`` holds; gives what is carried.

    Args:
        cond_fn: gives a truth value or a tensor of one element
        body_fn: gives as many values as it takes
        carried_inputs: the first values

    >>> eg.func.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, eg.ones(2)))
    (3, tensor([8., 8.]))
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(
            f"Expect carried_inputs to be a tuple or a list, but got {type(carried_inputs)}."
        )
    carried: tuple[object, ...] | list[object] = carried_inputs
    while cond_fn(*carried):
        found = body_fn(*carried)
        if not isinstance(found, (tuple, list)) or len(found) != len(carried):
            raise RuntimeError(
                f"body_fn should return {len(carried)} values like the inputs, but got {found}."
            )
        carried = type(carried)(found)
    return carried


def map(f: Callable[..., object], xs: object, *args: object) -> Any:
    """``f`` of every slice of ``xs`` along the first dimension; the results stacked.

    Args:
        f: a function of a slice and ``args``
        xs: a tensor, or a dictionary, list or tuple of tensors of the same first extent
        args: given to every call as they are

    >>> eg.func.map(lambda x, y: x * y, eg.arange(3.0), eg.tensor([1.0, 2.0]))
    tensor([[0., 0.],
            [1., 2.],
            [2., 4.]])
    """
    if not callable(f):
        raise RuntimeError(f"map_fn must be callable, but got {f}.")
    leaves, spec = _flat_xs(xs)
    if any(leaf.shape[:1] == (0,) for leaf in leaves):
        raise RuntimeError("Leading dimensions of mapped xs cannot be 0.")
    count = _extent("map", leaves, 0)
    results = [f(tree_unflatten([x[i] for x in leaves], spec), *args) for i in range(count)]
    return _stacked(results, 0)


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]],
    init: object,
    xs: object,
    *,
    dim: int = 0,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """``carry, y = combine_fn(carry, x)`` for every slice of ``xs``: the last carry, all ``y``.

    Args:
        combine_fn: a function of the carry and a slice
        init: the first carry, a tensor or a dictionary, list or tuple of tensors
        xs: what is sliced, in the same way
        dim: the dimension along which; results are stacked along it too; default 0
        reverse: whether to start with the last slice; default ``False``

    >>> eg.func.scan(lambda c, x: (c + x, c * x), eg.tensor(1.0), eg.tensor([1.0, 2.0, 3.0]))
    (tensor(7.), tensor([ 1.,  4., 12.]))
    """
    if not callable(combine_fn):
        raise RuntimeError(f"Combine_fn must be a callable, but got {combine_fn}")
    leaves, spec = _flat_xs(xs)
    _check_scanned(leaves, dim, RuntimeError)
    structure = tree_flatten(init)[1]
    count = _extent("scan", leaves, dim)
    carry, results = init, []
    for i in reversed(range(count)) if reverse else range(count):
        found = combine_fn(carry, tree_unflatten([x.select(dim, i) for x in leaves], spec))
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise RuntimeError("combine_fn must return a pair: the next carry and an output.")
        carry, y = found
        if tree_flatten(carry)[1] != structure:
            raise RuntimeError("combine_fn must return a carry of the structure of init.")
        results.append(y)
    return carry, _stacked(results[::-1] if reverse else results, dim)


def associative_scan(
    combine_fn: AnyFunction,
    xs: object,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """All partial results of an associative function over the slices of ``xs``.

    A tree of combinations: about log2(n) calls of the function, batched over the slices.

    Args:
        combine_fn: a function of two slices that gives another
        xs: a tensor, or a dictionary, list or tuple of tensors
        dim: the dimension along which
        reverse: whether to start with the last slice; default ``False``
        combine_mode: ``"pointwise"`` or ``"generic"``, which make no difference here

    >>> eg.func.associative_scan(lambda a, b: a * b, eg.tensor([1.0, 2.0, 3.0, 4.0]), 0)
    tensor([ 1.,  2.,  6., 24.])
    """
    if not callable(combine_fn):
        raise ValueError(f"Combine_fn must be a callable, but got {combine_fn}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"combine_mode must be 'pointwise' or 'generic', got {combine_mode!r}")
    leaves, spec = _flat_xs(xs)
    _check_scanned(leaves, dim, ValueError)
    _extent("associative_scan", leaves, dim)

    def combine(a: list[Tensor], b: list[Tensor]) -> list[Tensor]:
        def of_slices(x: list[Tensor], y: list[Tensor]) -> list[Tensor]:
            found = combine_fn(tree_unflatten(x, spec), tree_unflatten(y, spec))
            flat, structure = tree_flatten(found)
            if structure != spec:
                raise ValueError("combine_fn must return a value of the structure of xs.")
            return flat

        together: list[Tensor] = vmap(of_slices)(a, b)
        return together

    moved = [x.movedim(dim, 0) for x in leaves]
    if reverse:
        moved = [x.flip(0) for x in moved]
    found = _prefixes(combine, moved)
    if reverse:
        found = [x.flip(0) for x in found]
    return tree_unflatten([x.movedim(0, dim) for x in found], spec)


def _prefixes(
    combine: Callable[[list[Tensor], list[Tensor]], list[Tensor]], xs: list[Tensor]
) -> list[Tensor]:
    """The prefixes of the first dimension: those of pairs, and one combination in between."""
    count = xs[0].shape[0]
    if count < 2:
        return xs
    pairs = combine([x[0:-1:2] for x in xs], [x[1::2] for x in xs])
    odd = _prefixes(combine, pairs)
    rest = [x[2::2] for x in xs]
    if rest[0].shape[0]:
        even = combine([x[: rest[0].shape[0]] for x in odd], rest)
        even = [_F["cat"]([x[:1], e]) for x, e in zip(xs, even, strict=True)]
    else:
        even = [x[:1] for x in xs]
    return [_interleaved(e, o) for e, o in zip(even, odd, strict=True)]


def _interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """The rows of two tensors in turn; the first may have one more."""
    common = odd.shape[0]
    pairs: Tensor = _F["stack"]([even[:common], odd], 1)
    joined = pairs.reshape((2 * common, *odd.shape[1:]))
    return joined if even.shape[0] == common else _F["cat"]([joined, even[common:]])


def _flat_xs(xs: object) -> tuple[list[Tensor], Any]:
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise RuntimeError("Expected at least 1 xs leaf")
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"All xs leaves must be a Tensor, but got {type(leaf)}.")
    return leaves, spec


def _check_scanned(leaves: Sequence[Tensor], dim: int, error: type[Exception]) -> None:
    for leaf in leaves:
        if not -leaf.ndim <= dim < leaf.ndim or leaf.shape[dim] == 0:
            raise error(
                "All xs leaves must at least have 'dim' number of dimensions and scan dimension > 0"
            )


def _extent(name: str, leaves: Sequence[Tensor], dim: int) -> int:
    extents = {leaf.shape[dim] if leaf.ndim else 0 for leaf in leaves}
    if len(extents) != 1 or 0 in extents:
        raise RuntimeError(f"{name}: xs must have the same extent, but got {sorted(extents)}.")
    return extents.pop()


def _stacked(results: list[object], dim: int) -> object:
    """The results of all slices, leaf by leaf."""
    flat = [tree_flatten(result) for result in results]
    if any(spec != flat[0][1] for _, spec in flat):
        raise RuntimeError("every call must give a result of the same structure.")
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree_unflatten([_F["stack"](list(column), dim) for column in columns], flat[0][1])
