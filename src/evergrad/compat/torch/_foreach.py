"""``_foreach_add_`` and its family: one method applied to lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.linalg import vector_norm
from evergrad.ops.surface.public import FUNCTIONS

_PREFIX = "_foreach_"


def _of_each(value: object, count: int) -> list[Any]:
    """One argument for each tensor: members of a list, or of a row of scalars, or the same."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return [value] * count


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    return tuple(vector_norm(t, ord, dtype=dtype) for t in self)


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> None:
    for target, source in zip(self, src, strict=True):
        target.copy_(source)


def _foreach_max(self: Any) -> tuple[Tensor, ...]:
    return tuple(t.max() for t in self)


def _foreach_powsum(self: Any, ord: Any = 2, dtype: object = None) -> tuple[Tensor, ...]:
    return tuple(t.to(dtype or t.dtype).abs().pow(ord).sum() for t in self)


def _foreach_pow(self: Any, exponent: Any) -> tuple[Tensor, ...]:
    if isinstance(self, (list, tuple)):
        exponents = _of_each(exponent, len(self))
        return tuple(FUNCTIONS["pow"](t, e) for t, e in zip(self, exponents, strict=True))
    return tuple(FUNCTIONS["pow"](self, e) for e in exponent)


def _split_scalars(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """Arguments under their keywords: the factor of addcmul and addcdiv is ``value=``."""
    if name in ("addcmul", "addcdiv") and len(args) == 3:
        return args[:2], {**kwargs, "value": args[2]}
    if name in ("addcmul", "addcdiv") and "scalars" in kwargs:
        kwargs["value"] = kwargs.pop("scalars")
    return args, kwargs


def _scalars(value: object) -> Any:
    """A tensor of factors as a list of numbers."""
    return value.tolist() if isinstance(value, Tensor) and value.ndim == 1 else value


@cache
def _family(name: str) -> Callable[..., Any]:
    plain = name.removesuffix("_")
    method = getattr(Tensor, name)

    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _split_scalars(plain, args, kwargs)
        if "value" in kwargs:
            kwargs["value"] = _scalars(kwargs["value"])
        count = len(self)
        rows = [_of_each(a, count) for a in args]
        named = {key: _of_each(value, count) for key, value in kwargs.items()}
        made = tuple(
            method(t, *(row[i] for row in rows), **{k: v[i] for k, v in named.items()})
            for i, t in enumerate(self)
        )
        return None if name.endswith("_") else made

    apply.__name__ = apply.__qualname__ = _PREFIX + name
    return apply


def __getattr__(name: str) -> Any:
    method = name.removeprefix(_PREFIX)
    if name.startswith(_PREFIX) and hasattr(Tensor, method):
        return _family(method)
    raise AttributeError(f"evergrad has no {name}")
