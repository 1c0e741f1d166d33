"""Nested containers, under the path PyTorch programs import them from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.core.tree import (
    TreeSpec,
    register_pytree_node,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_structure,
    tree_unflatten,
)

PyTree = Any


def tree_iter(tree: PyTree) -> Any:
    """The leaves, one after the other."""
    return iter(tree_leaves(tree))


def tree_map_(func: Callable[..., object], tree: PyTree, *rests: PyTree) -> PyTree:
    """Call ``func`` on each leaf for what it does to it; gives the tree itself."""
    tree_map(func, tree, *rests)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether a predicate holds for all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether a predicate holds for one leaf."""
    return any(map(pred, tree_leaves(tree)))


def tree_all_only(kind: Any, pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether a predicate holds for all leaves of a type."""
    return all(pred(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, kind))


def tree_any_only(kind: Any, pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether a predicate holds for one leaf of a type."""
    return any(pred(leaf) for leaf in tree_leaves(tree) if isinstance(leaf, kind))


__all__ = [
    "PyTree", "TreeSpec", "register_pytree_node", "tree_all", "tree_all_only", "tree_any",
    "tree_any_only", "tree_flatten", "tree_iter", "tree_leaves", "tree_map", "tree_map_",
    "tree_map_only", "tree_structure", "tree_unflatten",
]  # fmt: skip
