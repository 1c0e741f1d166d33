"""The backward graphs of tensors: what they hold, and whether they can still be run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import TYPE_CHECKING

from evergrad.compiler.frontend.effects.outputs import is_made_leaf
from evergrad.compiler.frontend.session import Session
from evergrad.core.node import FreedNode, GraphNode, Leaf
from evergrad.core.saved_values import Packed, overwritten_error
from evergrad.core.settings import counts_data_writes
from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


def reachable_tensors(roots: Sequence[Tensor]) -> set[int]:
    """The ids of tensors that the histories of some tensors reference."""
    found: set[int] = set()
    seen: set[int] = set()
    stack: Leaves = list(roots)
    while stack:
        held = stack.pop()
        if held is None or id(held) in seen:
            continue
        seen.add(id(held))
        if isinstance(held, Tensor):
            found.add(id(held))
            stack += (held._node, held._grad, *held.__dict__.values())
            if held._view is not None:
                stack += (held._view.base, held._view.from_no_grad)
        elif isinstance(held, GraphNode):
            stack += held.parents
            stack += _held_by_node(held)
        elif isinstance(held, FunctionType):
            stack += (cell.cell_contents for cell in held.__closure__ or ())
        elif isinstance(held, (list, tuple, set)):
            stack += held
        elif isinstance(held, dict):
            stack += held.values()
    return found


def nodes_behind(root: GraphNode | None) -> Iterator[GraphNode]:
    """A node and those that a backward pass from it may run, leaves excluded."""
    stack, seen = [root], set()
    while stack:
        node = stack.pop()
        if node is None or node.seq in seen or isinstance(node, Leaf):
            continue
        seen.add(node.seq)
        yield node
        stack += getattr(node, "parents", ())


def leads_to_made_leaf(root: GraphNode | None, trace: Session) -> bool:
    """Whether a backward pass from a node ends at a leaf that the traced call has made, and Python
    still has."""
    return any(
        is_made_leaf(parent, trace)
        for node in nodes_behind(root) for parent in getattr(node, "parents", ())
    )  # fmt: skip


def is_freed(root: GraphNode | None) -> bool:
    """Whether a backward pass from a node would need what another one has freed."""
    for node in nodes_behind(root):
        context = getattr(node, "ctx", None)  # of a custom function
        saved = getattr(node, "saved", ()) if context is None else getattr(context, "_saved", ())
        if saved is None or isinstance(node, FreedNode):
            return True
    return False


def written_to(root: GraphNode | None) -> str | None:
    """The error of a backward pass from a node, if what it needs was written to."""
    for node in nodes_behind(root):
        for entry in getattr(node, "saved", None) or ():
            if entry.__class__ is not Packed and entry[1] is not None:
                _, storage, version, _ = entry
                if storage.version != version and counts_data_writes():
                    return str(overwritten_error(node, storage, version))
    return None


def runs_hooks(root: GraphNode | None) -> bool:
    """Whether a backward pass from a node calls hooks of the user's on the way to the leaves: they
    may have effects, which only the pass itself may have."""
    for node in nodes_behind(root):
        hooks = node.hooks
        tables = () if hooks is None else (*hooks.on_result.values(), hooks.before, hooks.after)
        if any(not _is_ours(hook) for table in tables for hook in table.values()):
            return True
        if getattr(getattr(node, "cls", None), "calls_hooks", False):
            return True
    return False


def _is_ours(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("evergrad.")


def _held_by_node(node: GraphNode) -> list[object]:
    held: Leaves = []
    if node.hooks is not None:
        held += (node.hooks.on_result, node.hooks.before, node.hooks.after)
    held += (
        entry.packed for entry in getattr(node, "saved", None) or () if entry.__class__ is Packed
    )
    ctx = getattr(node, "ctx", None)
    if ctx is not None:
        held.append(vars(ctx))
    return held
