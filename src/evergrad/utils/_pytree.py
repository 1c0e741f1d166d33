"""Nested containers, under the path PyTorch programs import them from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.core.tree import (
    IsLeaf,
    TreeSpec,
    children_of,
    register_pytree_node,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_structure,
    tree_unflatten,
)

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

PyTree = Any


def tree_iter(tree: PyTree, is_leaf: IsLeaf | None = None) -> Any:
    """The leaves, one after the other."""
    return iter(tree_leaves(tree, is_leaf))


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf | None = None) -> bool:
    """Whether a tree is a leaf."""
    return tree_structure(tree, is_leaf).is_leaf()


def tree_map_(
    func: Callable[..., object], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf | None = None
) -> PyTree:
    """Call ``func`` on each leaf for what it does to it; gives the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only_(
    type_or_types_or_pred: object, func: Callable[[Any], object], tree: PyTree,
    is_leaf: IsLeaf | None = None,
) -> PyTree:  # fmt: skip
    """Call ``func`` on the leaves of one type; gives the tree itself."""
    tree_map_only(type_or_types_or_pred, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None) -> bool:
    """Whether a predicate holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None) -> bool:
    """Whether a predicate holds for one leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None
) -> bool:
    """Whether a predicate holds for all leaves of a type."""
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(
    type_or_types: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf | None = None
) -> bool:
    """Whether a predicate holds for one leaf of a type."""
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


# -- leaves with the way to them ------------------------------------------------------------------


class SequenceKey(NamedTuple):
    """A step to a member of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """A step to a value of a dictionary."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """A step to a field of a named tuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: object) -> Any:
        return getattr(obj, self.name)


KeyPath = tuple[Any, ...]


def keystr(kp: KeyPath) -> str:
    """The steps as a program writes them: ``['a'][0]``."""
    return "".join(str(key) for key in kp)


def key_get(obj: object, kp: KeyPath) -> Any:
    """What the steps lead to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _steps(tree: PyTree, count: int) -> list[object]:
    if isinstance(tree, dict):
        return [MappingKey(key) for key in tree]
    if hasattr(tree, "_fields"):
        return [GetAttrKey(name) for name in tree._fields]
    return [SequenceKey(number) for number in range(count)]


def _with_paths(tree: PyTree, is_leaf: IsLeaf | None, before: KeyPath) -> Leaves:
    found = None if is_leaf is not None and is_leaf(tree) else children_of(tree)
    if found is None:
        return [(before, tree)]
    steps = zip(_steps(tree, len(found[1])), found[1], strict=True)
    return [leaf for step, child in steps for leaf in _with_paths(child, is_leaf, (*before, step))]


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf | None = None) -> list[tuple[KeyPath, Any]]:
    """The leaves, each behind the steps that lead to it."""
    return _with_paths(tree, is_leaf, ())


def tree_flatten_with_path(
    tree: PyTree, is_leaf: IsLeaf | None = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """The leaves with the steps to them, and the structure."""
    return _with_paths(tree, is_leaf, ()), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., object], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf | None = None
) -> PyTree:
    """Apply ``func`` to the steps and the leaf (and those of further trees), for each leaf."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(rest) for rest in rests]
    rows = zip(pairs, *columns, strict=True)
    return tree_unflatten([func(path, leaf, *more) for (path, leaf), *more in rows], spec)


__all__ = [
    "GetAttrKey", "KeyPath", "MappingKey", "PyTree", "SequenceKey", "TreeSpec", "key_get", "keystr",
    "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only",
    "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves",
    "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten",
]  # fmt: skip
