"""Annotations of PyTorch's former compiler, which leave functions as they are."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from .jit import export, ignore, is_scripting, unused

T = TypeVar("T")


def _copy_to_script_wrapper(fn: T) -> T:
    return fn


def _overload(func: T) -> T:
    return func


def _overload_method(func: T) -> T:
    return func


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str,
    func_name: str,
) -> Any:  # fmt: skip
    """A function that calls one of two, by the value of an argument."""

    def choose(*args: object, **kwargs: object) -> object:
        flag = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if flag else if_false)(*args, **kwargs)

    return choose


__all__ = ["Final", "boolean_dispatch", "export", "ignore", "is_scripting", "unused"]
