"""Signatures of generated functions, derived at the first look: importing them costs nothing."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

_OUT = inspect.Parameter(
    "out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Tensor | None"
)


class DerivedSignature(inspect.Signature):
    """The signature of a function that wraps another: with ``out``, with another result."""

    __slots__ = ("_function", "_known", "_out", "_returns")

    def __init__(
        self, function: Callable[..., object], *, out: bool = False, returns: str | None = None
    ) -> None:
        self._function = function
        self._out = out
        self._returns = returns
        self._known: inspect.Signature | None = None

    def _derived(self) -> inspect.Signature:
        if self._known is None:
            base = inspect.signature(self._function)
            parameters = list(base.parameters.values())
            if self._out:
                at = len(parameters)
                if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
                    at -= 1
                parameters.insert(at, _OUT)
            returns = base.return_annotation if self._returns is None else self._returns
            self._known = inspect.Signature(parameters, return_annotation=returns)
        return self._known

    @property
    def _parameters(self) -> OrderedDict[str, inspect.Parameter]:
        return OrderedDict(self._derived().parameters)

    @property
    def _return_annotation(self) -> object:
        return self._derived().return_annotation

    def replace(self, **changes: Any) -> inspect.Signature:  # type: ignore[override]
        return self._derived().replace(**changes)

    def __reduce__(self) -> Any:
        return self._derived().__reduce__()
