"""Hooks and checks of a backward pass.

A hook gets cotangents as tensors in memory of their own, to keep or to change, and may return
replacements of the same types. ``on_tensors`` says whether the pass runs on tensors or on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.compound import Compound, as_cotangent
from evergrad.core.node import GraphNode
from evergrad.core.op import TABLE
from evergrad.core.source_location import describe
from evergrad.core.tensor import Tensor, from_array

if TYPE_CHECKING:
    from evergrad.core.types import Args, Tree


def hook_argument(value: Any, owned: bool, on_tensors: bool) -> Any:
    """A cotangent as a tensor that shares no memory with the backward pass."""
    if value is None:
        return None
    if on_tensors or isinstance(value, Compound):
        return bind(TABLE["clone"], value)
    return from_array(value if owned else value.copy())


def _as_value(tensor: Tensor, on_tensors: bool) -> Any:
    """A cotangent in the form of the pass, from a tensor that a hook may still reference."""
    return tensor if tensor is None or on_tensors else as_cotangent(tensor)


def call_tensor_hooks(
    node: GraphNode, values: list[object], owned: list[bool], on_tensors: bool
) -> None:
    """Run the hooks on single results, then store the gradients of retain_grad()."""
    hooks = node.hooks
    assert hooks is not None
    for index, on_result in hooks.on_result.items():
        if values[index] is None or not on_result:
            continue
        given = hook_argument(values[index], owned[index], on_tensors)
        for hook in list(on_result.values()):
            changed = hook(given)
            if changed is not None:
                _check_replacement(node, changed, given)
                given = changed
        values[index], owned[index] = _as_value(given, on_tensors), False
    for index, owner in hooks.retained.items():
        tensor = owner()
        if values[index] is not None and tensor is not None:
            grad = hook_argument(values[index], False, on_tensors)
            tensor._grad = grad if tensor._grad is None else tensor._grad + grad


def call_node_prehooks(
    node: GraphNode, values: list[object], owned: list[bool], on_tensors: bool
) -> None:
    """Run the hooks before a node's vjp, which may replace its cotangents."""
    assert node.hooks is not None
    given = tuple(hook_argument(v, o, on_tensors) for v, o in zip(values, owned, strict=True))
    for hook in list(node.hooks.before.values()):
        given = _replaced(node, hook(given), given)
    values[:] = [_as_value(v, on_tensors) for v in given]
    owned[:] = [False] * len(owned)


def call_node_hooks(
    node: GraphNode, grads: Sequence[object], values: Sequence[object], on_tensors: bool
) -> list[object]:
    """Run the hooks after a node's vjp; gives the cotangents of its arguments."""
    assert node.hooks is not None
    given = tuple(hook_argument(g, False, on_tensors) for g in grads)
    arrived = tuple(hook_argument(v, False, on_tensors) for v in values)
    for hook in list(node.hooks.after.values()):
        given = _replaced(node, hook(given, arrived), given)
    return [_as_value(g, on_tensors) for g in given]


def _check_replacement(node: GraphNode, changed: object, given: Tree) -> None:
    if not isinstance(changed, Tensor):
        raise TypeError(
            f"a hook on a gradient of {node.name()} returned {type(changed).__name__}; it must "
            "return None or a Tensor"
        )
    if given is not None and not changed._type.same(given._type):
        raise RuntimeError(
            f"a hook on a gradient of {node.name()} returned a {changed._type}; it must return "
            f"None or a {given._type}"
        )


def _replaced(node: GraphNode, changed: object, given: tuple[object, ...]) -> Args:
    """The gradients after a hook on a node, checked."""
    if changed is None:
        return given
    found = changed if isinstance(changed, tuple) else (changed,)
    if len(found) != len(given):
        raise RuntimeError(
            f"a hook on {node.name()} returned {len(found)} gradients; it was given {len(given)}"
        )
    for new, old in zip(found, given, strict=True):
        if new is not None:
            _check_replacement(node, new, old)
    return found


def check_finite(node: Any, grads: Sequence[object]) -> None:
    """Anomaly detection: raise if a vjp gave a NaN."""
    for i, grad in enumerate(grads):
        array = grad._value if isinstance(grad, Tensor) else grad
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fcV":
            continue
        if np.isnan(array).any():
            raise RuntimeError(
                f"Function '{node.name()}' returned nan values in its {i}th output.\n"
                f"  computed forward by: {describe(node.location)}"
            )
