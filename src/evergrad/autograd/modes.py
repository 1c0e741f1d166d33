"""Switches for recording: context managers, decorators and functions as in PyTorch.

A mode holds in the thread (more exactly, the context) that set it; a new thread starts with
gradients on. ``no_grad`` in the state says that the user switched recording off: a traced equation
keeps it, so that it is not recorded when the trace is run.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from contextvars import Token
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from evergrad.core.package_name import package_name
from evergrad.core.state import STATE, State, set_mode

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="_Mode")


class _Mode:
    """A context manager that is also a decorator, for functions and generators."""

    _changes: dict[str, Any]

    def __enter__(self) -> None:
        tokens: list[Token[State]] = self.__dict__.setdefault("_tokens", [])
        tokens.append(STATE.set(STATE.get().replace(**self._changes)))

    def __exit__(self, *exc: object) -> None:
        STATE.reset(self.__dict__["_tokens"].pop())

    def _fresh(self) -> _Mode:
        mode = _Mode()
        mode._changes = self._changes
        return mode

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return self._decorate_generator(function)  # type: ignore[return-value]

        @functools.wraps(function)
        def within(*args: object, **kwargs: object) -> object:
            with self._fresh():
                return function(*args, **kwargs)

        return within  # type: ignore[return-value]

    def _decorate_generator(self, function: AnyFunction) -> Callable[..., object]:
        @functools.wraps(function)
        def within(*args: object, **kwargs: object) -> Any:
            generator = function(*args, **kwargs)
            resume = functools.partial(next, generator)
            while True:
                with self._fresh():
                    try:
                        item = resume()
                    except StopIteration as stop:
                        return stop.value
                try:
                    sent = yield item
                except GeneratorExit:
                    with self._fresh():
                        generator.close()
                    raise
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
                else:
                    resume = functools.partial(generator.send, sent)

        return within


def _usable_bare(mode: M, function: F | None) -> M | F:
    return mode if function is None else mode(function)


_RECORDING = {"grad": True, "no_grad": False}
_RECORDING_NOTHING = {"grad": False, "no_grad": True}


class no_grad(_Mode):  # noqa: N801 - PyTorch's spelling
    """Record nothing inside. ``with no_grad():`` or ``@no_grad()`` (also ``@no_grad``).

    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> with eg.no_grad():
    ...     (x * 2).requires_grad
    False
    >>> @eg.no_grad()
    ... def evaluate():
    ...     return x * 2
    >>> evaluate().requires_grad
    False
    """

    _changes = _RECORDING_NOTHING

    @overload
    def __new__(cls, function: None = None) -> Self: ...
    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, function: F | None = None) -> Any:
        return _usable_bare(super().__new__(cls), function)


class enable_grad(_Mode):  # noqa: N801 - PyTorch's spelling
    """Record inside, also within :class:`no_grad`.

    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> with eg.no_grad(), eg.enable_grad():
    ...     (x * 2).requires_grad
    True
    """

    _changes = _RECORDING

    @overload
    def __new__(cls, function: None = None) -> Self: ...
    @overload
    def __new__(cls, function: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, function: F | None = None) -> Any:
        return _usable_bare(super().__new__(cls), function)


class inference_mode(_Mode):  # noqa: N801 - PyTorch's spelling
    """Record nothing inside; here the same as :class:`no_grad`, at the same cost.

    Args:
        mode: whether it holds; default ``True``

    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> with eg.inference_mode():
    ...     (x * 2).requires_grad
    False
    """

    @overload
    def __new__(cls, mode: bool = True) -> Self: ...
    @overload
    def __new__(cls, mode: F) -> F: ...  # type: ignore[misc]
    def __new__(cls, mode: object = True) -> Any:
        made = super().__new__(cls)
        on = callable(mode) or bool(mode)
        made._changes = {"grad": not on, "no_grad": on, "inference": on}
        return made(mode) if callable(mode) else made

    def __init__(self, mode: object = True) -> None:
        pass


class set_grad_enabled(_Mode):  # noqa: N801 - PyTorch's spelling
    """Set recording at once; used in a ``with`` statement, until its end.

    Args:
        mode: whether to record

    >>> with eg.set_grad_enabled(False):
    ...     eg.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        former = STATE.get()
        self._former = {"grad": former.grad, "no_grad": former.no_grad}
        self._changes = {"grad": bool(mode), "no_grad": not mode}
        set_mode(**self._changes)

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        set_mode(**self._former)

    def __call__(self, function: F) -> F:
        set_mode(**self._former)  # only the function is meant
        return super().__call__(function)


class set_multithreading_enabled(_Mode):  # noqa: N801 - PyTorch's spelling
    """Accepted and without effect: backward runs in the thread that calls it.

    >>> with eg.autograd.set_multithreading_enabled(False):
    ...     eg.ones(2).sum()
    tensor(2.)
    """

    def __init__(self, mode: bool) -> None:
        self.prev: bool = True
        self.mode: bool = bool(mode)
        self._changes = {}


class set_detect_anomaly(_Mode):  # noqa: N801 - PyTorch's spelling
    """Check every cotangent for NaN and name the op and line it came from.

    Args:
        mode: whether to check
        check_nan: whether to look for NaN; default ``True``

    >>> with eg.autograd.set_detect_anomaly(True):
    ...     eg.is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._changes = {"anomaly": bool(mode)}
        self._former = STATE.get().anomaly
        set_mode(anomaly=bool(mode))

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        set_mode(anomaly=self._former)


class detect_anomaly(_Mode):  # noqa: N801 - PyTorch's spelling
    """Within it, a NaN in backward is an error that names the op and line it came from.

    Args:
        check_nan: whether to look for NaN; default ``True``

    >>> x = eg.zeros(1, requires_grad=True)
    >>> try:
    ...     with eg.autograd.detect_anomaly():
    ...         (x.sqrt() * 0).sum().backward()
    ... except RuntimeError as error:
    ...     print("nan" in str(error))
    True
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._changes = {"anomaly": check_nan}
        if package_name() == "torch":
            warnings.warn(
                "Anomaly Detection has been enabled. This mode will increase the runtime and "
                "should only be enabled for debugging.",
                stacklevel=2,
            )


def is_grad_enabled() -> bool:
    """Whether operations are being recorded.

    >>> with eg.no_grad():
    ...     eg.is_grad_enabled()
    False
    """
    return STATE.get().grad


def is_inference_mode_enabled() -> bool:
    """Whether ``inference_mode`` holds.

    >>> with eg.inference_mode():
    ...     eg.is_inference_mode_enabled()
    True
    """
    return STATE.get().inference


def is_anomaly_enabled() -> bool:
    """Whether cotangents are checked for NaN.

    >>> eg.is_anomaly_enabled()
    False
    """
    return STATE.get().anomaly
