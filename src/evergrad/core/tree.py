"""Pytrees: nested containers flattened to leaves, and rebuilt from leaves.

The functions PyTorch programs import from ``torch.utils._pytree``. Dicts, lists, tuples, named
tuples and ``OrderedDict`` are containers; anything else is a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any


class TreeSpec:
    """The structure of a tree: its containers without the leaves."""

    __slots__ = ("children", "context", "kind", "num_leaves")

    def __init__(self, kind: Any, context: Any, children: list[TreeSpec]) -> None:
        self.kind = kind
        self.context = context
        self.children = children
        self.num_leaves: int = 1 if kind is None else sum(c.num_leaves for c in children)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and self.kind is other.kind
            and self.context == other.context
            and self.children == other.children
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.num_leaves))

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        return f"TreeSpec({self.kind.__name__}, {self.context}, {self.children})"

    def is_leaf(self) -> bool:
        return self.kind is None


LEAF = TreeSpec(None, None, [])


def _children(tree: Any) -> tuple[Any, list[Any]] | None:
    """(context, children) of a container, ``None`` for a leaf."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return None, list(tree)
    if kind is dict or kind is OrderedDict:
        return list(tree), list(tree.values())
    if kind is defaultdict:
        return (tree.default_factory, list(tree)), list(tree.values())
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return kind, list(tree)
    return None


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves from left to right, and the structure."""
    found = _children(tree)
    if found is None:
        return [tree], LEAF
    context, children = found
    leaves: list[Any] = []
    specs = []
    for child in children:
        child_leaves, spec = tree_flatten(child)
        leaves += child_leaves
        specs.append(spec)
    return leaves, TreeSpec(type(tree), context, specs)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """A tree of this structure from leaves."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: got {len(leaves)} leaves for a tree of {treespec.num_leaves}"
        )
    return _rebuild(iter(leaves), treespec)


def _rebuild(leaves: Any, spec: TreeSpec) -> Any:
    if spec.kind is None:
        return next(leaves)
    children = [_rebuild(leaves, child) for child in spec.children]
    if spec.kind is dict or spec.kind is OrderedDict:
        return spec.kind(zip(spec.context, children, strict=True))
    if spec.kind is defaultdict:
        factory, keys = spec.context
        return defaultdict(factory, zip(keys, children, strict=True))
    if spec.context is not None:
        return spec.context(*children)
    return spec.kind(children)


def tree_leaves(tree: Any) -> list[Any]:
    return tree_flatten(tree)[0]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """Apply ``func`` to each leaf (and to the leaves of further trees of the same structure)."""
    leaves, spec = tree_flatten(tree)
    columns = [leaves] + [tree_flatten(rest)[0] for rest in rests]
    return tree_unflatten([func(*row) for row in zip(*columns, strict=True)], spec)


def tree_map_only(kind: type, func: Callable[[Any], Any], tree: Any) -> Any:
    """Apply ``func`` to the leaves of one type, keep the others."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree)


def tree_structure(tree: Any) -> TreeSpec:
    return tree_flatten(tree)[1]
