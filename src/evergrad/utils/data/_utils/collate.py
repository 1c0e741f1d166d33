"""From a list of examples to a batch, and from NumPy values to tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import evergrad
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.trace import Var
from evergrad.errors import ShapeError
from evergrad.memory import pool

if TYPE_CHECKING:
    pass


CollateFunction = Callable[..., Any]
CollateMap = dict[type | tuple[type, ...], CollateFunction]

# Kinds of NumPy arrays that hold texts or objects, of which no tensor can be made.
_NOT_NUMERIC = "SUO"


def default_convert(data: object) -> Any:
    """Turn every NumPy array and number inside nested containers into a tensor.

    Args:
        data: anything; what is no array or number stays

    >>> eg.utils.data.default_convert({"x": np.array([1, 2]), "name": "a"})
    {'x': tensor([1, 2]), 'name': 'a'}
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in _NOT_NUMERIC else evergrad.as_tensor(data)
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _like_sequence(data, [default_convert(value) for value in data])
    return data


def default_collate(batch: object) -> Any:
    """Stack the examples of a batch: tensors, arrays and numbers become tensors with one more
    dimension; containers are kept, with each of their values collated; texts stay lists.

    >>> default_collate([(1, "a"), (2, "b")])
    [tensor([1, 2]), ('a', 'b')]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Collate by the function entered for the type of the examples, or container by container."""
    first = batch[0]
    function = _function_for(type(first), collate_fn_map or {})
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)

    def inside(values: object) -> Any:
        return collate(values, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        return _like_mapping(first, {key: inside([d[key] for d in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(inside, zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(example) != len(first) for example in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [inside(values) for values in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _like_sequence(first, columns)
    raise _not_collatable(type(first))


def _function_for(kind: type, functions: CollateMap) -> CollateFunction | None:
    if kind in functions:
        return functions[kind]
    for known, function in functions.items():
        if issubclass(kind, known):
            return function
    return None


def _not_collatable(what: object) -> TypeError:
    return TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {what}"
    )


def _like_mapping(model: Mapping[object, object], values: dict[object, object]) -> object:
    """A mapping of the model's type where one can be made, else a dict."""
    try:
        if isinstance(model, MutableMapping):
            # A copy keeps what else the mapping holds, such as the factory of a defaultdict.
            made = copy.copy(model)
            made.update(values)
            return made
        return type(model)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


def _like_sequence(model: Sequence[object], values: list[object]) -> object:
    """A sequence of the model's type where one can be made, else a list."""
    try:
        if isinstance(model, MutableSequence):
            made = copy.copy(model)
            for i, value in enumerate(values):
                made[i] = value
            return made
        return values if isinstance(model, range) else type(model)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


# -- by type ------------------------------------------------------------------------------------


def collate_tensor_fn(
    batch: Sequence[Tensor], *, collate_fn_map: CollateMap | None = None
) -> Tensor:
    """Stack tensors; those that require no gradient without recording anything."""
    first = batch[0]
    if not all(_is_plain(tensor) and tensor._type is first._type for tensor in batch):
        try:
            return evergrad.stack(list(batch))
        except ShapeError as error:
            raise ShapeError(
                f"{error}. The examples of a batch have one shape; pad them in a collate_fn "
                "(nn.utils.rnn.pad_sequence), or pass batch_size=None."
            ) from None
    arrays = [tensor.array() for tensor in batch]
    out = pool.empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    return from_array(np.stack(arrays, out=out))


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is nothing but its elements."""
    symbolic = isinstance(tensor._value, Var) or isinstance(tensor._storage.value, Var)
    return type(tensor) is Tensor and not symbolic and not tensor.requires_grad


def collate_numpy_array_fn(
    batch: Sequence[Any], *, collate_fn_map: CollateMap | None = None
) -> Any:
    """Stack arrays as tensors."""
    if batch[0].dtype.kind in _NOT_NUMERIC:
        raise _not_collatable(batch[0].dtype)
    result: Tensor | None = collate(
        [evergrad.as_tensor(array) for array in batch], collate_fn_map=collate_fn_map
    )
    return result


def collate_numpy_scalar_fn(
    batch: Sequence[object], *, collate_fn_map: CollateMap | None = None
) -> Tensor:
    return evergrad.as_tensor(np.asarray(batch))


def collate_float_fn(batch: Sequence[float], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return evergrad.tensor(batch, dtype=evergrad.float64)


def collate_int_fn(batch: Sequence[int], *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return evergrad.tensor(batch)


def collate_str_fn(batch: object, *, collate_fn_map: CollateMap | None = None) -> Any:
    return batch


default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}
"""What :func:`default_collate` does with values that are no containers, by their type.

A library may enter its own types here.
"""
