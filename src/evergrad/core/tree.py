"""Pytrees: nested containers flattened to leaves, and rebuilt from leaves.

The functions PyTorch programs import from ``torch.utils._pytree``. Dicts, lists, tuples, named
tuples, ``OrderedDict`` and registered classes are containers; anything else is a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Leaves, Tree


class Fields(tuple[str, ...]):
    """The names of a record's fields: the context of an object that is a container of these."""

    __slots__ = ()


class TreeSpec:
    """The structure of a tree: its containers without the leaves."""

    __slots__ = ("children", "context", "kind", "num_leaves")

    def __init__(self, kind: object, context: object, children: list[TreeSpec]) -> None:
        self.kind: Any = kind
        self.context: Any = context
        self.children: list[TreeSpec] = children
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

    @property
    def num_nodes(self) -> int:
        """Containers and leaves, this one included."""
        return 1 + sum(child.num_nodes for child in self.children)

    @property
    def num_children(self) -> int:
        return len(self.children)

    @property
    def children_specs(self) -> list[TreeSpec]:
        """The structures of the children, under PyTorch's name."""
        return self.children

    @property
    def type(self) -> Any:
        """The class of the container, under PyTorch's name."""
        return self.kind

    def child(self, index: int) -> TreeSpec:
        return self.children[index]

    def unflatten(self, leaves: Iterable[object]) -> Any:
        """A tree of this structure from leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: object) -> list[object]:
        """The parts of a tree at the leaves of this structure."""
        return _leaves_as(tree, self)


LEAF = TreeSpec(None, None, [])

Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
Unflatten = Callable[[list[Any], Any], Any]

_registered: dict[type, tuple[Flatten, Unflatten]] = {}


def register_pytree_node(
    cls: type, flatten_fn: Flatten, unflatten_fn: Unflatten, **options: object
) -> None:
    """Make a class a container: ``flatten_fn(object)`` gives its children and a context, which is
    compared by ``==``; ``unflatten_fn(children, context)`` gives an object of them. Options say how
    PyTorch writes structures to files, which is not done here."""
    if cls in _registered:
        raise ValueError(f"{cls} is already registered as pytree node")
    _registered[cls] = flatten_fn, unflatten_fn


def children_of(tree: Tree) -> tuple[object, list[object]] | None:
    """(context, children) of a container, ``None`` for a leaf."""
    kind = type(tree)
    if kind is tuple or kind is list:
        return None, list(tree)
    if kind is dict or kind is OrderedDict:
        return list(tree), list(tree.values())
    if kind is defaultdict:
        return (tree.default_factory, list(tree)), list(tree.values())
    if kind in _registered:
        children, context = _registered[kind][0](tree)
        return context, list(children)
    if isinstance(tree, tuple) and hasattr(kind, "_fields") and not getattr(tree, "__dict__", 0):
        return kind, list(tree)
    return None


IsLeaf = Callable[[Any], bool]
Children = Callable[[Any], tuple[Any, list[Any]] | None]


def tree_flatten(tree: object, is_leaf: IsLeaf | None = None) -> tuple[Leaves, TreeSpec]:
    """The leaves from left to right, and the structure; ``is_leaf`` makes leaves of containers."""
    if is_leaf is None:
        return flatten(tree, children_of)
    return flatten(tree, lambda node: None if is_leaf(node) else children_of(node))


def flatten(tree: object, children_of: Children) -> tuple[Leaves, TreeSpec]:
    """The leaves and the structure, with the containers that ``children_of`` knows."""
    found = children_of(tree)
    if found is None:
        return [tree], LEAF
    context, children = found
    leaves: Leaves = []
    specs = []
    for child in children:
        child_leaves, spec = flatten(child, children_of)
        leaves += child_leaves
        specs.append(spec)
    return leaves, TreeSpec(type(tree), context, specs)


def tree_unflatten(leaves: Iterable[object], treespec: TreeSpec) -> Any:
    """A tree of this structure from leaves."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten: got {len(leaves)} leaves for a tree of {treespec.num_leaves}"
        )
    return _rebuild(iter(leaves), treespec)


def _rebuild(leaves: Any, spec: TreeSpec) -> object:
    if spec.kind is None:
        return next(leaves)
    children = [_rebuild(leaves, child) for child in spec.children]
    if isinstance(spec.context, Fields):
        return _record_of(spec.kind, spec.context, children)
    if spec.kind is dict or spec.kind is OrderedDict:
        return spec.kind(zip(spec.context, children, strict=True))
    if spec.kind is defaultdict:
        factory, keys = spec.context
        return defaultdict(factory, zip(keys, children, strict=True))
    if spec.kind in _registered:
        return _registered[spec.kind][1](children, spec.context)
    if spec.context is not None:
        return spec.context(*children)
    return spec.kind(children)


def _record_of(kind: type, names: Fields, values: list[object]) -> object:
    """An object with these fields, made without its constructor."""
    made: Any = SimpleNamespace() if kind is SimpleNamespace else object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


def tree_leaves(tree: object, is_leaf: IsLeaf | None = None) -> list[object]:
    return tree_flatten(tree, is_leaf)[0]


def tree_map(
    func: Callable[..., object], tree: object, *rests: object, is_leaf: IsLeaf | None = None
) -> Any:
    """Apply ``func`` to each leaf (and to the leaves of further trees of the same structure)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves] + [_leaves_as(rest, spec) for rest in rests]
    return tree_unflatten([func(*row) for row in zip(*columns, strict=True)], spec)


def _leaves_as(tree: object, spec: TreeSpec) -> list[object]:
    """The parts of a tree at the leaves of a structure."""
    if spec.kind is None:
        return [tree]
    found = children_of(tree)
    if found is None or len(found[1]) != len(spec.children):
        raise ValueError(f"Node type or arity mismatch: expected {spec}, but got {type(tree)}")
    pairs = zip(found[1], spec.children, strict=True)
    return [leaf for child, below in pairs for leaf in _leaves_as(child, below)]


def tree_map_only(
    type_or_types_or_pred: Any,
    func: AnyFunction,
    tree: object,
    is_leaf: IsLeaf | None = None,
) -> Any:
    """Apply ``func`` to the leaves of one type, or that a predicate holds for; keep the others."""
    given = type_or_types_or_pred
    if callable(given) and not isinstance(given, type):
        return tree_map(lambda leaf: func(leaf) if given(leaf) else leaf, tree, is_leaf=is_leaf)
    return tree_map(
        lambda leaf: func(leaf) if isinstance(leaf, given) else leaf, tree, is_leaf=is_leaf
    )


def tree_structure(tree: object, is_leaf: IsLeaf | None = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]
