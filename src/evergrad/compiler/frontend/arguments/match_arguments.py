"""Whether a call has the signature of an earlier one, in a fraction of the time it takes to compute
that: leaves are read by the known structure, and each is compared with what is expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.arguments.signature import (
    PythonCall,
    aliases_of,
    key_of,
    keys_of,
    same_objects_among,
)
from evergrad.core.records import children_with_records
from evergrad.core.shapes import TensorType, contiguous_strides
from evergrad.core.storage import NO_ARRAY, Storage
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.tree import Fields, TreeSpec
from evergrad.core.types import Args, Kwargs

if TYPE_CHECKING:
    from evergrad.core.types import Leaves, Tree

# The tensors and the numbers among the arguments of a call that are inputs; None if its signature
# is another.
Match = Callable[[Args, Kwargs], tuple[Sequence[Tensor], list[float]] | None]
# Appends the leaves of a tree to a list; false if the tree has another structure.
_Read = Callable[[Any, list[Any]], bool]


def matcher(call: PythonCall, written: Collection[Storage]) -> Match:
    """Matches calls with the signature of this one, modes not considered, that pass no storage
    which the program writes."""
    read = _argument_reader(call.spec)
    places = [n for n, leaf in enumerate(call.leaves) if isinstance(leaf, Tensor)]
    all_are_tensors = len(places) == len(call.leaves)
    inputs = call.number_positions
    kinds = [type(number) for number in call.numbers]
    others = [
        (n, leaf, call.leaf_keys[n]) for n, leaf in enumerate(call.leaves)
        if n not in places and n not in inputs
    ]  # fmt: skip
    are_expected = _tensor_check(call, written)
    collect = container_collector(call.spec) if _count_containers(call.spec) > 2 else None
    containers = call.containers

    def match(args: Args, kwargs: Kwargs) -> Any:
        leaves = read(args, kwargs)
        if leaves is None:
            return None
        if collect is not None and same_objects_among(collect(args, kwargs)) != containers:
            return None
        tensors = leaves if all_are_tensors else [leaves[n] for n in places]
        if not are_expected(tensors):
            return None
        for n, leaf, key in others:
            if leaves[n] is not leaf and key_of(leaves[n]) != key:
                return None
        numbers = [leaves[n] for n in inputs]
        for number, kind in zip(numbers, kinds):  # noqa: B905 - equal lengths
            if number.__class__ is not kind:
                return None
        return tensors, numbers

    return match


def _count_containers(spec: TreeSpec) -> int:
    """The containers in arguments, those of all positional and of all named ones included, tuples
    excluded."""
    own = not spec.is_leaf() and not (isinstance(spec.kind, type) and issubclass(spec.kind, tuple))
    return own + sum(map(_count_containers, spec.children))


def _tensor_check(
    call: PythonCall, written: Collection[Storage]
) -> Callable[[Sequence[Any]], bool]:
    """Whether tensors have types, strides, gradients and aliases as in the signature of a call:
    those that its tensors have now may be others, given to them by another thread."""
    is_tensor = [isinstance(leaf, Tensor) for leaf in call.leaves]
    keys = [key for key, known in zip(call.leaf_keys, is_tensor, strict=True) if known]
    # Type, strides, whether contiguous, and the key of a tensor that requires grad or is of
    # another class.
    expected = [
        (
            type,
            _strides_of(type, strides),
            strides is None,
            (type, strides, *rest) if rest else None,
        )
        for type, strides, *rest in keys
    ]
    aliases, count = call.aliases, len(call.tensors)
    unwritten = frozenset(written).isdisjoint

    def are_expected(tensors: Sequence[Tensor]) -> bool:
        for tensor, (type, strides, dense, key) in zip(tensors, expected):  # noqa: B905 - equal
            if tensor.__class__ is not Tensor and (key is None or not isinstance(tensor, Tensor)):
                return False
            value = tensor._value
            if tensor._type is not type or value is NO_ARRAY:
                return False
            # Dimensions of one element may have any stride.
            if value.strides != strides and not (dense and value.flags.c_contiguous):
                return False
            if key is not None:
                if key_of(tensor) != key:
                    return False
            elif tensor._node is not None or (tensor._view is not None and current_node(tensor)):
                return False
        storages = [tensor._storage for tensor in tensors]
        if not unwritten(storages):
            return False
        if aliases is None:
            return count < 2 or len(set(storages)) == count
        return bool(aliases_of(tensors) == aliases)

    return are_expected


def _strides_of(type: TensorType, strides: tuple[int, ...] | None) -> tuple[int, ...]:
    """The strides in bytes of an array with this key."""
    if strides is not None:
        return strides
    return tuple([stride * type.dtype.itemsize for stride in contiguous_strides(type.shape)])


def _argument_reader(spec: TreeSpec) -> Callable[[Args, Kwargs], Any]:
    """The leaves of arguments; ``None`` if their structure is another one."""
    args, kwargs = spec.children
    count, names = len(args.children), kwargs.context
    if all(child.is_leaf() for child in args.children) and not names:

        def read_flat(args: Args, kwargs: Kwargs) -> Any:
            return None if kwargs or len(args) != count else args

        return read_flat
    read_args, read_kwargs = leaf_reader(args), leaf_reader(kwargs)

    def read(args: Args, kwargs: Kwargs) -> Any:
        leaves: Leaves = []
        return leaves if read_args(args, leaves) and read_kwargs(kwargs, leaves) else None

    return read


def container_collector(
    spec: TreeSpec,
) -> Callable[[tuple[object, ...], dict[str, object]], list[object]]:
    """The containers and records among arguments that have this structure, but for tuples."""
    args, kwargs = spec.children
    of_args = _nested_containers(args)
    of_kwargs = _nested_containers(kwargs)

    def collect(args: Args, kwargs: Kwargs) -> Leaves:
        found: Leaves = []
        for index, note in of_args:
            note(args[index], found)
        if of_kwargs:
            members = list(kwargs.values())
            for index, note in of_kwargs:
                note(members[index], found)
        return found

    return collect


def _nested_containers(spec: TreeSpec) -> list[tuple[int, Callable[[object, list[object]], None]]]:
    """The members of a tree that have containers, with functions that append these to a list."""
    pairs = enumerate(spec.children)
    return [(index, _container_noter(child)) for index, child in pairs if not child.is_leaf()]


def _container_noter(spec: TreeSpec) -> Callable[[Any, Leaves], None]:
    below, members_of = _nested_containers(spec), _members_of(spec)
    is_own = not (isinstance(spec.kind, type) and issubclass(spec.kind, tuple))

    def note(tree: Tree, found: Leaves) -> None:
        if is_own:
            found.append(tree)
        if below:
            members = list(members_of(tree))
            for index, deeper in below:
                deeper(members[index], found)

    return note


def leaf_reader(spec: TreeSpec) -> _Read:
    """Appends the leaves of trees with this structure."""
    members_of = _members_of(spec)
    below = [None if child.is_leaf() else leaf_reader(child) for child in spec.children]
    count = len(below)
    if not any(below):

        def read_members(tree: Tree, leaves: Leaves) -> bool:
            members = members_of(tree)
            if members is None or len(members) != count:
                return False
            leaves += members
            return True

        return read_members

    def read(tree: Tree, leaves: Leaves) -> bool:
        members = members_of(tree)
        if members is None or len(members) != count:
            return False
        for member, deeper in zip(members, below):  # noqa: B905 - equal lengths
            if deeper is None:
                leaves.append(member)
            elif not deeper(member, leaves):
                return False
        return True

    return read


def _members_of(spec: TreeSpec) -> Callable[[Any], Any]:
    """The members of a container of a known kind; ``None`` for another kind, or other keys."""
    kind, context = spec.kind, spec.context
    if kind in (tuple, list) or (context is kind and not kind.__dictoffset__):  # a named tuple
        return lambda tree: tree if tree.__class__ is kind else None
    if any(key.__class__ is not str for key in keys_of(spec)):
        kinds = tuple([key_of(key) for key in keys_of(spec) if key.__class__ is not str])
        return lambda tree: _members_with(tree, kind, context, kinds)
    if kind is dict:
        return lambda tree: (
            tree.values() if tree.__class__ is dict and list(tree) == context else None
        )
    if isinstance(context, Fields) and not hasattr(kind, "__slots__"):
        names = list(context)
        return lambda tree: (
            tree.__dict__.values()
            if tree.__class__ is kind and list(tree.__dict__) == names else None
        )  # fmt: skip

    def members(tree: Tree) -> Any:
        found = children_with_records(tree) if tree.__class__ is kind else None
        return None if found is None or found[0] != context else found[1]

    return members


def _members_with(tree: Tree, kind: type, context: object, kinds: object) -> Any:
    """The members of a dictionary with keys that are not all texts."""
    found = children_with_records(tree) if tree.__class__ is kind else None
    if found is None or found[0] != context:
        return None
    return found[1] if tuple([key_of(k) for k in tree if k.__class__ is not str]) == kinds else None
