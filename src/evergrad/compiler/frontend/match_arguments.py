"""Whether a call has the signature of an earlier one, in a fraction of the time it takes to compute
that: leaves are read by the known structure, and each is compared with what is expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from evergrad.compiler.frontend.arguments import PythonCall, aliases_of, key_of
from evergrad.core.records import children_with_records
from evergrad.core.shapes import TensorType, contiguous_strides
from evergrad.core.storage import NO_ARRAY, Storage
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.tree import Fields, TreeSpec

# The tensors and the numbers among the arguments of a call that are inputs; None if its signature
# is another.
Match = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Sequence[Tensor], list[float]] | None]
# Appends the leaves of a tree to a list; false if the tree has another structure.
_Read = Callable[[Any, list[Any]], bool]


def matcher(call: PythonCall, written: Collection[Storage]) -> Match:
    """Matches calls with the signature of this one, modes not considered, that pass no storage
    which the program writes."""
    read = _leaf_reader(call.spec)
    places = [n for n, leaf in enumerate(call.leaves) if isinstance(leaf, Tensor)]
    all_are_tensors = len(places) == len(call.leaves)
    inputs = call.number_positions
    kinds = [type(number) for number in call.numbers]
    others = [
        (n, leaf, call.leaf_keys[n]) for n, leaf in enumerate(call.leaves)
        if n not in places and n not in inputs
    ]  # fmt: skip
    are_expected = _tensor_check(call, written)

    def match(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves = read(args, kwargs)
        if leaves is None:
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


def _tensor_check(
    call: PythonCall, written: Collection[Storage]
) -> Callable[[Sequence[Any]], bool]:
    """Whether tensors have types, strides, gradients and aliases as in the signature of a call:
    those that its tensors have now may be others, given to them by another thread."""
    is_tensor = [isinstance(leaf, Tensor) for leaf in call.leaves]
    keys = [key for key, known in zip(call.leaf_keys, is_tensor, strict=True) if known]
    types = [(type, _strides_of(type, strides), strides is None) for type, strides, *_ in keys]
    with_grad = [(n, key) for n, key in enumerate(keys) if len(key) > 2]
    without_grad = [n for n, key in enumerate(keys) if len(key) == 2]
    aliases, count = call.aliases, len(call.tensors)
    unwritten = frozenset(written).isdisjoint

    def are_expected(tensors: Sequence[Any]) -> bool:
        for tensor, (type, strides, dense) in zip(tensors, types):  # noqa: B905 - equal lengths
            if tensor.__class__ is not Tensor and not isinstance(tensor, Tensor):
                return False
            value = tensor._value
            if tensor._type is not type or value is NO_ARRAY:
                return False
            # Dimensions of one element may have any stride.
            if value.strides != strides and not (dense and value.flags.c_contiguous):
                return False
        for n in without_grad:
            tensor = tensors[n]
            if tensor._node is not None or (tensor._view is not None and current_node(tensor)):
                return False
        for n, key in with_grad:
            if key_of(tensors[n]) != key:
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


def _leaf_reader(spec: TreeSpec) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """The leaves of arguments; ``None`` if their structure is another one."""
    args, kwargs = spec.children
    count, names = len(args.children), kwargs.context
    if all(child.is_leaf() for child in args.children) and not names:

        def read_flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return None if kwargs or len(args) != count else args

        return read_flat
    read_args, read_kwargs = _reader(args), _reader(kwargs)

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves: list[Any] = []
        return leaves if read_args(args, leaves) and read_kwargs(kwargs, leaves) else None

    return read


def _reader(spec: TreeSpec) -> _Read:
    members_of = _members_of(spec)
    below = [None if child.is_leaf() else _reader(child) for child in spec.children]
    count = len(below)
    if not any(below):

        def read_members(tree: Any, leaves: list[Any]) -> bool:
            members = members_of(tree)
            if members is None or len(members) != count:
                return False
            leaves += members
            return True

        return read_members

    def read(tree: Any, leaves: list[Any]) -> bool:
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
    if kind in (tuple, list) or context is kind:  # a named tuple
        return lambda tree: tree if tree.__class__ is kind else None
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

    def members(tree: Any) -> Any:
        found = children_with_records(tree) if tree.__class__ is kind else None
        return None if found is None or found[0] != context else found[1]

    return members
