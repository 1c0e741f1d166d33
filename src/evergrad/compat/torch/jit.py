"""PyTorch's former compiler: functions and modules are given back as they are.

``evergrad.compile`` is the compiler. Nothing here changes what a program computes; saving a
scripted program is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from evergrad.nn.module import Module

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

T = TypeVar("T")


class ScriptModule(Module):
    """A module of PyTorch's former compiler: nothing here is an instance unless it is derived."""


class RecursiveScriptModule(ScriptModule):
    """What ``script`` gives in PyTorch; here it gives the module itself."""


class TopLevelTracedModule(ScriptModule):
    """What ``trace`` gives in PyTorch; here it gives the module itself."""


class ScriptFunction:
    """A function of PyTorch's former compiler: none exists here."""


class Attribute:
    """A value with its type, for modules that are scripted: the value itself."""

    def __new__(cls, value: object, type: object) -> Any:
        return value


class TracerWarning(Warning):
    """A warning of ``trace``, which here never warns."""


def script_method(fn: T) -> T:
    """The method itself."""
    return fn


def trace_module(mod: T, inputs: object, *args: object, **kwargs: object) -> T:
    """The module itself."""
    return mod


def set_fusion_strategy(strategy: object) -> Leaves:
    """Without effect."""
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Without effect."""


class _Optimized:
    def __init__(self, should_optimize: bool = True) -> None:
        """A context without effect."""

    def __enter__(self) -> None:
        """Without effect."""

    def __exit__(self, *error: object) -> None:
        """Without effect."""


optimized_execution = fuser = strict_fusion = _Optimized


def script(
    obj: T,
    optimize: None = None,
    _frames_up: int = 0,
    _rcb: object = None,
    example_inputs: object = None,
) -> T:
    """The function, module or class itself."""
    return obj


def trace(
    func: T, example_inputs: object = None, optimize: None = None, check_trace: bool = True,
    check_inputs: object = None, check_tolerance: float = 1e-5, strict: bool = True,
    example_kwarg_inputs: object = None,
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


def ignore(drop: object = False, **kwargs: object) -> Any:
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


def annotate(the_type: object, the_value: T) -> T:
    """The value itself."""
    return the_value


def is_scripting() -> bool:
    """Whether PyTorch's compiler is reading this: no."""
    return False


def is_tracing() -> bool:
    """Whether PyTorch's compiler is watching this: no."""
    return False


def fork(func: Callable[..., T], *args: object, **kwargs: object) -> Callable[[], T]:
    """Call a function now; :func:`wait` gives the result."""
    result = func(*args, **kwargs)
    return lambda: result


def wait(future: Callable[[], T]) -> T:
    """What the function given to :func:`fork` returned."""
    return future()


def save(m: object, f: object, _extra_files: object = None) -> NoReturn:
    """Refused: there is no scripted program to save."""
    raise NotImplementedError(
        "evergrad keeps no scripted programs; save the parameters with "
        "evergrad.save(module.state_dict(), path)"
    )


def load(f: object, map_location: object = None, _extra_files: object = None) -> NoReturn:
    """Refused: scripted programs are not read."""
    raise NotImplementedError(
        "evergrad does not read scripted programs; load parameters with "
        "module.load_state_dict(evergrad.load(path))"
    )


__all__ = [
    "Attribute",
    "Final",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracerWarning",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fork",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "load",
    "optimize_for_inference",
    "optimized_execution",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]  # fmt: skip
