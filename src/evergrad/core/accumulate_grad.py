"""Accumulation of gradients at leaves.

The first cotangent becomes ``.grad`` without a copy if the backward pass owns its memory; further
ones are added in place. Sparse and ragged gradients stay in their layout.
"""

from __future__ import annotations

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.compound import Compound, CompoundType, total
from evergrad.core.eager.parallel_ufunc import add_arrays
from evergrad.core.functionalize import note_grad_access
from evergrad.core.inplace import refuse_overlap, write_result
from evergrad.core.op import TABLE
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, fresh, from_array
from evergrad.core.trace import Var
from evergrad.core.types import Array
from evergrad.errors import GradientError
from evergrad.memory import pool
from evergrad.memory.ledger import GRADIENT


def accumulate_array(tensor: Tensor, value: Array, owned: bool) -> None:
    """Add an array to a leaf's gradient; ``owned`` says that no other object references it."""
    grad = tensor._grad
    if grad is None:
        tensor._grad = _as_gradient(value, owned, tensor._type)
        return
    if isinstance(grad._storage.value, Var) or not isinstance(grad._value, np.ndarray):
        if isinstance(grad, Compound):
            grad.add_into(added := pool.copy(value))
            tensor._grad = _as_gradient(added, True, tensor._type)
            return
        raise GradientError("the gradient of a leaf is a traced tensor outside its trace")
    if grad._view is not None:
        refuse_overlap(grad._value)
    add_arrays(grad._value, value, out=grad._value)
    grad._storage.version += 1


def accumulate_tensor(tensor: Tensor, value: Tensor, owned: bool) -> None:
    """Add a tensor to a leaf's gradient by ops: recorded (``create_graph``) or traced. Whether its
    memory is owned does not matter: tensors may be aliased."""
    note_grad_access(tensor)
    grad = tensor._grad
    if grad is None:
        # A copy: accumulation in place must not write to memory that others reference.
        tensor._grad = bind(TABLE["clone"], value)
        tensor._grad._storage.tag(GRADIENT)
    elif STATE.get().grad or isinstance(grad, Compound):
        tensor._grad = total(grad, value)
    else:
        write_result("accumulate", grad, grad + value)


def accumulate_compound(tensor: Tensor, value: Compound) -> None:
    """Add a sparse or ragged cotangent to a leaf's gradient: sparse ones stay sparse, a dense
    gradient is added to in place."""
    grad = tensor._grad
    if grad is None:
        grad = bind(TABLE["clone"], value)
    elif isinstance(grad, Compound):
        grad = grad + value
    else:
        value.add_into(grad._value)
        grad._storage.version += 1
    if isinstance(grad, Compound):
        for part in grad.parts():
            part._storage.tag(GRADIENT)
    tensor._grad = grad


def in_place_gradient(tensor: Tensor | None) -> Array | None:
    """The array of a leaf's gradient, to add a part to; ``None`` if it cannot be written so."""
    grad = None if tensor is None else tensor._grad
    if grad is None or grad._view is not None or not isinstance(grad._value, np.ndarray):
        return None
    grad._storage.version += 1
    return grad._value


def _as_gradient(array: Array, owned: bool, type: TensorType) -> Tensor:
    """An array as the gradient of a leaf of some type: itself if it is owned, contiguous and not a
    small part of a larger buffer, else a copy."""
    base = array.base
    whole = base is None or getattr(base, "nbytes", 0) <= 1.25 * array.nbytes + 8192
    if not (owned and whole and array.flags.c_contiguous):
        array = pool.copy(array)
    dense = not isinstance(type, CompoundType)  # a sparse leaf may have a dense gradient
    is_alike = dense and array.dtype == type.dtype.np and array.shape == type.shape
    grad = fresh(array, type) if is_alike else from_array(array)
    grad._storage.tag(GRADIENT)
    return grad
