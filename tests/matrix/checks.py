"""What the files of the matrix share: which samples to take, and PyTorch's answers for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import evergrad
from evergrad.core.tensor import Tensor, from_array
from evergrad.testing.checks import CHECKS
from evergrad.testing.samples import Sample
from evergrad.testing.samples.table import all_samples
from evergrad.testing.subject import SEED, Array, Subject, ensure, random_like

SAMPLES: list[Sample] = [s for row in sorted(all_samples()) for s in all_samples()[row]]

# How PyTorch refuses a call on other element types or on empty tensors.
NOT_TAKEN = (RuntimeError, TypeError, ValueError, IndexError, ZeroDivisionError)

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def cases(applies: Callable[[Sample], bool]) -> Any:
    """Run a test once for each sample that the predicate takes."""
    chosen = [sample for sample in SAMPLES if applies(sample)]
    return pytest.mark.parametrize("sample", chosen, ids=str)


def cases_of(check: str) -> Any:
    """Run a test once for each sample that a check has something to say about."""
    return cases(CHECKS[check].applies)


def run(check: str, sample: Sample) -> None:
    CHECKS[check].run(sample)


# -- PyTorch ------------------------------------------------------------------------------------


def to_torch(torch: ModuleType, array: Array) -> Any:
    """A PyTorch tensor with a copy of the array."""
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def from_torch(tensor: Any) -> Array:
    """The elements of a PyTorch tensor, 16-bit floats as float32."""
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 2:
        tensor = tensor.float()
    array: Array = tensor.numpy(force=True)
    return array


def torch_call(torch: ModuleType, subject: Subject, tensors: Sequence[Any]) -> list[Any]:
    """The same call on PyTorch's tensors; gives all the tensors that come back."""
    given = list(subject.sample.inputs)
    for place, tensor in zip(subject.places, tensors, strict=True):
        given[place] = tensor
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = subject.sample.call(torch, *given)
    found = [leaf for leaf in _leaves(result) if isinstance(leaf, torch.Tensor)]
    if any(leaf.dtype is torch.complex32 for leaf in found):
        raise TypeError("evergrad has no complex numbers of 16-bit floats")
    return found


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [leaf for part in result for leaf in _leaves(part)]
    return [result]


def ensure_same_types(what: str, found: Sequence[Tensor], expected: Sequence[Any]) -> None:
    """Results have PyTorch's number, shapes and element types."""
    ensure(
        len(found) == len(expected), f"{what}: {len(found)} results, PyTorch has {len(expected)}"
    )
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        ours, theirs = (tuple(a.shape), a.dtype.name), (tuple(b.shape), str(b.dtype)[6:])
        ensure(ours == theirs, f"{what}, result {i}: {ours}, PyTorch has {theirs}")


# -- derivatives of both ------------------------------------------------------------------------


def gradients_of(
    library: Any, results: Sequence[Any], points: Sequence[Any], seed: int
) -> list[Any]:
    """Gradients of the results in a random direction, with a graph; ``None`` where there is none.

    Works alike on tensors of evergrad and of PyTorch, and draws the same direction for both.
    """
    shapes = [np.empty(tuple(r.shape), _numpy_type(r)) for r in results]
    directions = random_like(shapes, seed)
    make = from_array if library is evergrad else partial(to_torch, library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = library.autograd.grad(
            list(results), list(points), [make(d) for d in directions],
            create_graph=True, allow_unused=True,
        )  # fmt: skip
    return list(found)


def torch_gradients(
    torch: ModuleType, results: Sequence[Any], points: Sequence[Any], seed: int
) -> list[Any] | None:
    """PyTorch's gradients, or ``None`` where it has none."""
    try:
        return gradients_of(torch, results, points, seed)
    except RuntimeError as error:
        if "not implemented" in str(error) or "not supported" in str(error):
            return None
        raise


def _numpy_type(tensor: Any) -> Any:
    name = str(tensor.dtype).rpartition(".")[2]
    return _BFLOAT16 if name == "bfloat16" else np.dtype(name)
