"""``_foreach_add_`` and its family: one method applied to lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from evergrad.core.tensor import Tensor
from evergrad.linalg import vector_norm
from evergrad.ops.surface.public import FUNCTIONS

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, DtypeLike

_PREFIX = "_foreach_"


def _of_each(value: object, count: int) -> list[object]:
    """One argument for each tensor: members of a list, or of a row of scalars, or the same."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return [value] * count


def _foreach_norm(self: Tensor, ord: object = 2, dtype: DtypeLike = None) -> tuple[Tensor, ...]:
    return tuple(vector_norm(t, ord, dtype=dtype) for t in self)


def _foreach_copy_(self: Tensor, src: Any, non_blocking: bool = False) -> None:
    for target, source in zip(self, src, strict=True):
        target.copy_(source)


def _foreach_max(self: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.max() for t in self)


def _foreach_powsum(self: Any, ord: object = 2, dtype: object = None) -> tuple[Tensor, ...]:
    return tuple(t.to(dtype or t.dtype).abs().pow(ord).sum() for t in self)


def _foreach_pow(self: object, exponent: Any) -> tuple[Tensor, ...]:
    if isinstance(self, (list, tuple)):
        exponents = _of_each(exponent, len(self))
        return tuple(FUNCTIONS["pow"](t, e) for t, e in zip(self, exponents, strict=True))
    return tuple(FUNCTIONS["pow"](self, e) for e in exponent)


def _split_scalars(
    name: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments under their keywords: the factor of addcmul and addcdiv is ``value=``."""
    if name in ("addcmul", "addcdiv") and len(args) == 3:
        return args[:2], {**kwargs, "value": args[2]}
    if name in ("addcmul", "addcdiv") and "scalars" in kwargs:
        kwargs["value"] = kwargs.pop("scalars")
    return args, kwargs


# What PyTorch calls operands of lists, in their order.
_OPERANDS = ("other", "scalar", "scalars", "exponent", "tensors1", "weight", "weights")


def _in_place_of_names(
    args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Operands that are given by name, at their places: methods call them otherwise."""
    given = [kwargs.pop(name) for name in _OPERANDS if name in kwargs]
    return (*args, *given), kwargs


def _scalars(value: object) -> object:
    """A tensor of factors as a list of numbers."""
    return value.tolist() if isinstance(value, Tensor) and value.ndim == 1 else value


def _written(method: AnyFunction) -> Callable[..., Tensor]:
    """A method whose result is written to its tensor, where there is no in-place form."""

    def write(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        others = [a if isinstance(a, Tensor) else FUNCTIONS["full_like"](self, a) for a in args]
        return self.copy_(method(self, *others, **kwargs))

    return write


@cache
def _family(name: str) -> Callable[..., object]:
    plain = name.removesuffix("_")
    method = getattr(Tensor, name, None) or _written(getattr(Tensor, plain))

    def apply(self: Tensor, *args: object, **kwargs: object) -> object:
        args, kwargs = _in_place_of_names(*_split_scalars(plain, args, kwargs))
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
    known = hasattr(Tensor, method) or hasattr(Tensor, method.removesuffix("_"))
    if name.startswith(_PREFIX) and known:
        return _family(method)
    raise AttributeError(f"evergrad has no {name}")
