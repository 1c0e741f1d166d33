"""PyTorch's former compiler: functions and modules are given back as they are.

``evergrad.compile`` is the compiler. Nothing here changes what a program computes; saving a
scripted program is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from evergrad.nn.module import Module as ScriptModule

T = TypeVar("T")


def script(
    obj: T, optimize: None = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None
) -> T:
    """The function, module or class itself."""
    return obj


def trace(
    func: T, example_inputs: Any = None, optimize: None = None, check_trace: bool = True,
    check_inputs: Any = None, check_tolerance: float = 1e-5, strict: bool = True,
    example_kwarg_inputs: Any = None,
) -> T:  # fmt: skip
    """The function or module itself: unlike PyTorch's it keeps its branches and loops."""
    return func


def freeze(mod: T, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True) -> T:
    """The module itself."""
    return mod


def optimize_for_inference(mod: T, other_methods: list[str] | None = None) -> T:
    """The module itself."""
    return mod


def script_if_tracing(fn: T) -> T:
    """The function itself."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """A decorator (with or without arguments) that leaves the function as it is."""
    return drop if callable(drop) else lambda function: function


def unused(fn: T) -> T:
    """The function itself."""
    return fn


def export(fn: T) -> T:
    """The function itself."""
    return fn


def interface(obj: T) -> T:
    """The class itself."""
    return obj


def annotate(the_type: Any, the_value: T) -> T:
    """The value itself."""
    return the_value


def is_scripting() -> bool:
    """Whether PyTorch's compiler is reading this: no."""
    return False


def is_tracing() -> bool:
    """Whether PyTorch's compiler is watching this: no."""
    return False


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Callable[[], T]:
    """Call a function now; :func:`wait` gives the result."""
    result = func(*args, **kwargs)
    return lambda: result


def wait(future: Callable[[], T]) -> T:
    """What the function given to :func:`fork` returned."""
    return future()


def save(m: Any, f: Any, _extra_files: Any = None) -> NoReturn:
    """Refused: there is no scripted program to save."""
    raise NotImplementedError(
        "evergrad keeps no scripted programs; save the parameters with "
        "evergrad.save(module.state_dict(), path)"
    )


def load(f: Any, map_location: Any = None, _extra_files: Any = None) -> NoReturn:
    """Refused: scripted programs are not read."""
    raise NotImplementedError(
        "evergrad does not read scripted programs; load parameters with "
        "module.load_state_dict(evergrad.load(path))"
    )


__all__ = [
    "Final", "ScriptModule", "annotate", "export", "fork", "freeze", "ignore", "interface",
    "is_scripting", "is_tracing", "load", "optimize_for_inference", "save", "script",
    "script_if_tracing", "trace", "unused", "wait",
]  # fmt: skip
