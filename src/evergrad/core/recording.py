"""Recording: new nodes of the autograd graph, with their edges and residuals.

A node saves what its vjp program reads, by reference or through the saved-tensor hooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.node import GraphNode, Node, next_sequence
from evergrad.core.op import Specialization
from evergrad.core.saved_values import Packed, save_value, verify
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import describe, user_location
from evergrad.core.state import State, using
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, current_node, detached, fresh, on_storage
from evergrad.core.trace import Var
from evergrad.core.tracing import trace_value
from evergrad.core.types import Args, Array
from evergrad.extension import provides

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

_new_node = Node.__new__


def record(
    state: State,
    specialization: Specialization,
    args: tuple[object, ...],
    outs: tuple[Tensor, ...],
    traced: tuple[object, ...] | None = None,
) -> Node | None:
    """Give the results a node, if any argument requires grad.

    ``traced`` are the arguments as values of the running trace, where there is one.
    """
    needs = 0
    bit = 1
    parents: list[GraphNode | None] = []
    indices: list[int] | None = None
    for arg in args:
        node = None
        if isinstance(arg, Tensor):
            node = arg._node if arg._view is None else current_node(arg)
            if node is not None:
                needs += bit
                if arg._index:
                    if indices is None:
                        indices = [0] * len(args)
                    indices[len(parents)] = arg._index
        parents.append(node)
        bit += bit
    if not needs:
        return None
    program = specialization.vjp_programs.get(needs)
    if program is None:
        program = specialization.vjp_program(needs)
    saved: object = ()
    if program.saves:
        if state.saved_hooks is None:
            saved = _save_all(specialization, program.saves, args, outs, traced)
        else:
            saved = _pack_all(state, program.saves, args, outs)
    node = _new_node(Node)
    node.seq = next_sequence()
    node.hooks = None
    node.vjp_program = program
    node.parents = tuple(parents)
    node.indices = None if indices is None else tuple(indices)
    node.saved = saved
    node.location = user_location(2)
    if specialization.selects:
        make_nan_safe(specialization.selected_parents(node.parents))
    if len(outs) == 1:
        out = outs[0]
        out._node = node
        return node
    for j, out in enumerate(outs):
        if out._type.dtype.category >= 2:
            out._node = node
            out._index = j
    return node


def make_nan_safe(nodes: Sequence[GraphNode | None]) -> None:
    """Switch the nodes that a selection reads from to NaN-safe vjps: elements that are not selected
    have zero cotangents.

    Goes back through elementwise and linear rows and reductions.
    """
    stack = list(nodes)
    while stack:
        found = stack.pop()
        if found.__class__ is not Node:
            continue
        program = found.vjp_program
        specialization = program.specialization
        if program.is_nan_safe or specialization.op.family in ("bilinear", "opaque"):
            continue
        found.vjp_program = specialization.nan_safe_program(program)
        stack += specialization.nan_safe_parents(found.parents)


def _save_all(
    specialization: Specialization,
    saves: tuple[int, ...],
    args: Args,
    outs: tuple[Tensor, ...],
    traced: tuple[Any, ...] | None,
) -> tuple[tuple[Var | int | Array, Storage | None, int, None], ...]:
    """The residuals of a vjp program, by reference.

    A value of a trace is immutable, whatever is written to its tensor later. A composite saves its
    arguments only because its inner graph is not inlined yet: their tensors may be overwritten.
    """
    kept: Leaves = []
    count = len(args)
    may_overwrite = traced is not None and specialization.op.family == "composite"
    for i in saves:
        source = args[i] if i < count else outs[i - count]
        if not isinstance(source, Tensor):
            kept.append((source, None, 0, None))
            continue
        value = source._value if traced is None or i >= count else traced[i]
        storage = Storage(value, source._type, 0) if may_overwrite else source._storage
        if storage.saved and not storage.shared:
            kept.append((value, storage, storage.version, None))
        else:
            kept.append(save_value(value, storage))
    return tuple(kept)


def _pack_all(
    state: State, saves: tuple[int, ...], args: tuple[object, ...], outs: tuple[Tensor, ...]
) -> list[object]:
    """The residuals through the hooks; a list, to distinguish them from a plain tuple."""
    count = len(args)
    sources = [args[i] if i < count else outs[i - count] for i in saves]
    return [
        pack(state, source, i >= count) if isinstance(source, Tensor) else (source, None, 0, None)
        for i, source in zip(saves, sources, strict=True)
    ]


def pack(state: State, tensor: Tensor, is_result: bool) -> Packed:
    """Call the pack hook; a result is detached, so that it does not reference its node."""
    assert state.saved_hooks is not None
    pack, unpack = state.saved_hooks
    version = tensor._storage.version
    with using(saved_hooks=None):
        packed = pack(detached(tensor) if is_result else tensor)
    if tensor._storage.version != version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input "
            "to pack hook can not be modified by in-place operations: let it return a changed copy."
        )
    return Packed(packed, unpack, tensor)


@provides("unpack")
def unpack(entry: Packed, node: Node) -> Tensor:
    """The tensor that the unpack hook returns for a residual, checked."""
    tensor = entry.unpack(entry.packed)
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"the unpack hook of saved_tensors_hooks must return a Tensor, not "
            f"{type(tensor).__name__} (value saved by {describe(node.location)})"
        )
    if not tensor._type.same(entry.type):
        raise RuntimeError(
            f"the unpack hook of saved_tensors_hooks returned a {tensor._type} where a "
            f"{entry.type} was saved by {describe(node.location)}"
        )
    storage = tensor._storage
    if storage is entry.origin():
        verify(node, (tensor._value, storage, entry.version, entry.saved_checksum))
    return tensor


def unpacked_handle(tensor: Tensor, type: TensorType) -> Tensor:
    """A handle without a node on what an unpack hook returned. The value of a traced view is the
    result of an equation, not that of its storage, so its handle has a storage of its own."""
    for value in (tensor._value, tensor._storage.value):
        if isinstance(value, Var):
            return fresh(trace_value(value.trace, tensor), type)
    return on_storage(tensor._value, type, tensor._storage, None)


def transfer_retain_grad(tensor: Tensor, node: GraphNode, index: int) -> None:
    """Move ``retain_grad()`` of a tensor to another result of the graph, which it now is."""
    before = tensor._node
    if before is None or before.hooks is None or not tensor.retains_grad:
        return
    node.ensure_hooks().retained[index] = before.hooks.retained.pop(tensor._index)
