"""Which function gives the divergence of two distributions, by their classes."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from evergrad.core.tensor import Tensor
from evergrad.distributions.distribution import Distribution

Divergence = Callable[[Any, Any], Tensor]
Function = TypeVar("Function", bound=Divergence)
Pair = tuple[type[Distribution], type[Distribution]]

_KL_REGISTRY: dict[Pair, Divergence] = {}
_FOUND: dict[Pair, Divergence | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Function], Function]:
    """A decorator for a function that gives ``kl_divergence`` for two classes.

    It serves subclasses too, unless a closer pair is registered.

    Args:
        type_p, type_q: the classes; subclasses follow

    >>> class Point(eg.distributions.Normal):
    ...     pass
    >>> @eg.distributions.register_kl(Point, Point)
    ... def _kl(p, q):
    ...     return eg.zeros(())
    >>> p = Point(eg.tensor(0.0), eg.tensor(1.0))
    >>> eg.distributions.kl_divergence(p, p)
    tensor(0.)
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # as in PyTorch, other classes may be registered
            raise TypeError(f"Expected a Distribution subclass but got {kind}")

    def decorate(function: Function) -> Function:
        _KL_REGISTRY[type_p, type_q] = function
        _FOUND.clear()
        return function

    return decorate


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence: the mean under ``p`` of ``log(p / q)``, for each batch.

    Args:
        p, q: distributions whose pair of classes is registered

    >>> p = eg.distributions.Normal(eg.tensor(0.0), eg.tensor(1.0))
    >>> q = eg.distributions.Normal(eg.tensor(1.0), eg.tensor(1.0))
    >>> eg.distributions.kl_divergence(p, q)
    tensor(0.5000)
    """
    pair = type(p), type(q)
    if pair not in _FOUND:
        _FOUND[pair] = _closest(*pair)
    function = _FOUND[pair]
    if function is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}"
        )
    return function(p, q)


def _closest(type_p: type, type_q: type) -> Divergence | None:
    """The function registered for the nearest ancestors of both classes."""
    matches = [
        (type_p.__mro__.index(p), type_q.__mro__.index(q), function)
        for (p, q), function in _KL_REGISTRY.items()
        if issubclass(type_p, p) and issubclass(type_q, q)
    ]
    if not matches:
        return None
    left = min(matches, key=lambda match: match[:2])
    right = min(matches, key=lambda match: (match[1], match[0]))
    if left[2] is not right[2]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({type_p.__mro__[left[0]].__name__}, "
            f"{type_q.__mro__[right[1]].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return left[2]
