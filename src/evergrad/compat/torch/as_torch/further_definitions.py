"""More of what :mod:`.private_names` refers to: checkpointing, element types, decorators."""

from __future__ import annotations

import builtins
import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

import evergrad
from evergrad.core.dtypes import INTEGRAL, dtype
from evergrad.core.tensor import Tensor
from evergrad.nn.parameter import UninitializedBuffer, UninitializedParameter

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# -- element types of quantized tensors: names, to compare with -----------------------------------

qint8: dtype = dtype("qint8", np.int8, INTEGRAL, 2)
quint8: dtype = dtype("quint8", np.uint8, INTEGRAL, 1)
qint32: dtype = dtype("qint32", np.int32, INTEGRAL, 4)
quint4x2: dtype = dtype("quint4x2", np.uint8, INTEGRAL, 1)
quint2x4: dtype = dtype("quint2x4", np.uint8, INTEGRAL, 1)

# -- lists of tensors in one call ------------------------------------------------------------------

FOREACH_TYPES: list[type] = [Tensor]
TensorLists = list[list[Tensor | None]]
Indices = list[int]

# -- PyTorch's former compiler --------------------------------------------------------------------

SCRIPTING = False  # as after PYTORCH_JIT=0
SCRIPTED_CLASSES: dict[object, Any] = {}

# -- lazy parameters -----------------------------------------------------------------------------


class _AnyUninitialized(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (UninitializedParameter, UninitializedBuffer))


class UninitializedTensorMixin(metaclass=_AnyUninitialized):
    """What parameters and buffers of lazy modules are before their first input."""


# -- checkpointing -------------------------------------------------------------------------------


def get_device_states(*args: object) -> tuple[list[int], list[Tensor]]:
    """The devices of the arguments other than the processor, and their random states: none."""
    return [], []


def set_device_states(devices: object, states: object, *, device_type: str | None = None) -> None:
    """Without effect: there are no further devices."""


def detach_variable(inputs: tuple[object, ...]) -> tuple[object, ...]:
    """Tensors without their history, as leaves where they require gradients."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported, got {type(inputs).__name__}")
    return tuple(
        x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs
    )


# -- dictionaries whose keys are compared by identity ---------------------------------------------


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """Values for objects, which it does not keep alive and does not compare."""

    def __init__(self, dict: Any = None, ref_type: object = None) -> None:
        self._entries: builtins.dict[int, tuple[Any, Any]] = {}
        self.update(dict or {})

    def __getitem__(self, key: object) -> Any:
        return self._entries[id(key)][1]

    def __setitem__(self, key: object, value: object) -> None:
        number, entries = id(key), self._entries
        self._entries[number] = weakref.ref(key, lambda _: entries.pop(number, None)), value

    def __delitem__(self, key: object) -> None:
        del self._entries[id(key)]

    def __iter__(self) -> Iterator[Any]:
        keys = [reference() for reference, _ in self._entries.values()]
        return iter([key for key in keys if key is not None])

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries


# -- decorators ----------------------------------------------------------------------------------


def disable_dynamo(fn: Callable[..., object] | None = None, recursive: bool = True) -> object:
    """The function as it is; also as a decorator with arguments."""
    return fn if fn is not None else (lambda function: function)


# -- distributions -------------------------------------------------------------------------------


def clipped_sigmoid(x: Tensor) -> Tensor:
    """The logistic function, kept away from 0 and 1."""
    info = evergrad.finfo(x.dtype)
    return evergrad.clamp(evergrad.sigmoid(x), min=info.tiny, max=1.0 - info.eps)


def precision_to_scale_tril(P: Tensor) -> Tensor:
    """The Cholesky factor of the covariance whose inverse is given."""
    flipped = evergrad.linalg.cholesky(evergrad.flip(P, (-2, -1)))
    inverse = evergrad.transpose(evergrad.flip(flipped, (-2, -1)), -2, -1)
    unit = evergrad.eye(P.shape[-1], dtype=P.dtype)
    return evergrad.linalg.solve_triangular(inverse, unit, upper=False)


def batch_mahalanobis(bL: Tensor, bx: Tensor) -> Tensor:
    """``x^T M^-1 x`` for ``M = L L^T``, over batches."""
    solved = evergrad.linalg.solve_triangular(bL, bx.unsqueeze(-1), upper=False)
    return solved.squeeze(-1).square().sum(-1)


def batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    """Products of a batch of matrices with a batch of vectors."""
    return evergrad.matmul(bmat, bvec.unsqueeze(-1)).squeeze(-1)


# -- lists of tensors ----------------------------------------------------------------------------


def no_foreach_devices() -> list[str]:
    """The devices with kernels for lists of tensors: the processor's are ordinary ones."""
    return []


def group_tensors_by_device_and_dtype(
    tensorlistlist: list[list[Tensor | None]], with_indices: bool = False
) -> dict[object, object]:
    """Columns of several lists, by the device and element type of the first list."""
    groups: dict[object, Any] = {}
    for place, first in enumerate(tensorlistlist[0]):
        if first is None:
            continue
        lists, places = groups.setdefault(
            (first.device, first.dtype), ([[] for _ in tensorlistlist], [])
        )
        for own, given in zip(lists, tensorlistlist, strict=True):
            own.append(given[place] if given else None)
        places.append(place)
    return {key: (lists, places if with_indices else None) for key, (lists, places) in
            groups.items()}  # fmt: skip


# -- contexts that decorate ----------------------------------------------------------------------


class DecoratorContextManager:
    """A context that decorates functions: each call enters a context of its own."""

    def __call__(self, orig_func: Callable[..., object]) -> AnyFunction:
        @functools.wraps(orig_func)
        def within(*args: object, **kwargs: object) -> object:
            with self.clone():
                return orig_func(*args, **kwargs)

        return within

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        raise NotImplementedError

    def clone(self) -> DecoratorContextManager:
        """Another context like this one; with arguments, a subclass says how."""
        return type(self)()


class NoParamDecoratorContextManager(DecoratorContextManager):
    """One without arguments, which may stand before a function without parentheses."""

    def __new__(cls, orig_func: Callable[..., object] | None = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else made(orig_func)


def make_ntuple(x: object, n: int) -> tuple[object, ...]:
    """The members of a sequence, or a number ``n`` times."""
    return tuple(x) if isinstance(x, Iterable) else (x,) * n
