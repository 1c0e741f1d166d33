"""Autocast: which ops compute in a lower precision and which in float32 while the mode is on.

The mode is a field of :class:`~evergrad.core.state.State`. A row states its policy in a column,
which ``bind`` reads while the mode is on. A function made of several rows states one where it is
defined, by :func:`autocast_policy`; :func:`under_autocast` wraps it when it becomes public. The
policies are those of PyTorch's CPU backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import dtype
from evergrad.core.row_facts import AutocastPolicy
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor
from evergrad.keywords import explain_keyword

F = TypeVar("F", bound=Callable[..., Any])
Convert = Callable[[Tensor], Tensor]


class Autocast:
    """The active mode: the lower precision, and a cache of weights cast to it.

    The cache lives as long as the outermost block, so that a weight used several times is cast
    once and its gradient comes back through one cast.
    """

    __slots__ = ("cache", "dtype")

    def __init__(
        self, dtype: dtype, cache: dict[object, tuple[Tensor, int, Tensor]] | None
    ) -> None:
        self.dtype: dtypes.dtype = dtype
        self.cache: dict[object, tuple[Tensor, int, Tensor]] | None = cache

    def convert_arguments(
        self, policy: AutocastPolicy | None, args: tuple[object, ...]
    ) -> tuple[object, ...]:
        """The arguments of a row of this policy; the same tuple if nothing changes."""
        if policy is None or policy is AutocastPolicy.KEEP:
            return args
        convert = _CONVERSIONS[policy](self, args)
        converted = tuple([convert(a) if isinstance(a, Tensor) else a for a in args])
        changed = any(a is not b for a, b in zip(args, converted, strict=True))
        return converted if changed else args

    def lowered(self, tensor: Tensor) -> Tensor:
        """The tensor in the lower precision, if it is eligible."""
        if not _is_eligible(tensor) or tensor.dtype is self.dtype:
            return tensor
        if self.cache is None or not _is_weight(tensor):
            return cast(tensor, self.dtype)
        key = (id(tensor), self.dtype)
        held = self.cache.get(key)
        if held is None or held[1] != tensor._storage.version:
            held = self.cache[key] = (tensor, tensor._storage.version, cast(tensor, self.dtype))
        return held[2]


def _is_eligible(tensor: Tensor) -> bool:
    kind = tensor.dtype
    return kind.is_floating_point and kind is not dtypes.float64


def _is_weight(tensor: Tensor) -> bool:
    """A leaf that requires grad; values of a trace have no identity to cache by."""
    state = STATE.get()
    return (
        state.grad
        and state.trace is None
        and tensor.dtype is dtypes.float32
        and tensor.requires_grad
        and tensor.is_leaf
        and tensor._view is None
    )


def widened(tensor: Tensor) -> Tensor:
    """The tensor in float32, if it is eligible."""
    return cast(tensor, dtypes.float32) if _is_eligible(tensor) else tensor


def as_float32(tensor: Tensor) -> Tensor:
    """The tensor in float32, if it is eligible and the mode is on."""
    return tensor if STATE.get().autocast is None else widened(tensor)


def as_lowered(tensor: Tensor) -> Tensor:
    """A result in the lower precision, if the mode is on."""
    autocast = STATE.get().autocast
    return tensor if autocast is None else autocast.lowered(tensor)


def addend_for(product: dtype, addend: Tensor) -> Tensor:
    """The addend of a product of this type, lowered if autocast has lowered the product."""
    autocast = STATE.get().autocast
    if autocast is None or product is not autocast.dtype:
        return addend
    return autocast.lowered(addend)


def autocast_policy(policy: AutocastPolicy) -> Callable[[F], F]:
    """State the policy of a function made of several rows."""

    def state(function: F) -> F:
        function.autocast = policy  # type: ignore[attr-defined]
        return function

    return state


def policy_of(function: Callable[..., object]) -> AutocastPolicy:
    """The policy that a function states."""
    stated: AutocastPolicy = getattr(function, "autocast", AutocastPolicy.KEEP)
    return stated


def under_autocast(function: F) -> F:
    """The function as the mode wants it, if it states a policy; else itself."""
    stated = policy_of(function)
    if stated is AutocastPolicy.KEEP:
        return function
    conversion = _CONVERSIONS[stated]

    @functools.wraps(function)
    def guarded(*args: object, **kwargs: object) -> object:
        autocast = STATE.get().autocast
        if autocast is None:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                explain_keyword(error, function)
                raise
        convert = conversion(autocast, args)
        with using(autocast=None):
            return function(
                *[_converted(convert, a) for a in args],
                **{key: _converted(convert, value) for key, value in kwargs.items()},
            )

    return guarded  # type: ignore[return-value]


def without_autocast(function: F) -> F:
    """The function for a result that is written to memory there is: that says the precision."""
    if STATE.get().autocast is None:
        return function

    def unaffected(*args: object, **kwargs: object) -> object:
        with using(autocast=None):
            return function(*args, **kwargs)

    return unaffected  # type: ignore[return-value]


def _converted(convert: Convert, value: Any) -> object:
    if isinstance(value, Tensor):
        return convert(value)
    if type(value) in (list, tuple):
        return type(value)(_converted(convert, v) for v in value)
    return value


def _to_widest(autocast: Autocast, args: tuple[object, ...]) -> Convert:
    """Float32 if one argument has it, else the lower precision."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    has_float32 = any(t.dtype is dtypes.float32 for t in tensors)
    return widened if has_float32 else autocast.lowered


_CONVERSIONS: dict[AutocastPolicy, Callable[[Autocast, tuple[object, ...]], Convert]] = {
    AutocastPolicy.LOWER: lambda autocast, args: autocast.lowered,
    AutocastPolicy.FLOAT32: lambda autocast, args: widened,
    AutocastPolicy.WIDEST: _to_widest,
    AutocastPolicy.OFF: lambda autocast, args: lambda tensor: tensor,
}
