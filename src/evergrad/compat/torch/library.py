"""Operators that packages register: Python functions that are called as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.autograd.function import Function

from . import _operators


class CustomOpDef:
    """A registered operator; calling it calls its function."""

    def __init__(self, name: str, function: Callable[..., object]) -> None:
        self._qualname = name
        self._name = name.rpartition("::")[2]
        self._function = function
        self._backward: Callable[..., object] | None = None
        self._setup: Callable[..., object] | None = None
        self.__name__: str = self._name
        self.__doc__ = function.__doc__

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self._backward is None:
            return self._function(*args, **kwargs)
        return _differentiable(self)(*args)

    def register_fake(self, fn: Callable[..., object], /) -> Callable[..., Any]:
        """Types are found by running the function, so its description is not used."""
        return fn

    def register_kernel(
        self, device_types: Any, fn: Callable[..., object] | None = None, /
    ) -> Callable[..., Any]:
        """Another function for a device; the one for the CPU replaces the first."""

        def register(function: Callable[..., object]) -> Callable[..., object]:
            if device_types is None or "cpu" in device_types:
                self._function = function
            return function

        return register if fn is None else register(fn)

    def register_autograd(
        self,
        backward: Callable[..., object],
        /,
        *,
        setup_context: Callable[..., object] | None = None,
    ) -> None:
        """The derivative, as ``autograd.Function`` takes it."""
        self._backward, self._setup = backward, setup_context

    def register_vmap(self, func: object = None) -> Any:
        """``vmap`` runs the function's own ops."""
        return func if func is not None else lambda function: function


def _differentiable(op: CustomOpDef) -> Callable[..., object]:
    class Registered(Function):
        @staticmethod
        def forward(*args: object) -> Any:
            return op._function(*args)

        @staticmethod
        def setup_context(ctx: object, inputs: object, output: object) -> None:
            if op._setup is not None:
                op._setup(ctx, inputs, output)

        @staticmethod
        def backward(ctx: object, *grads: object) -> Any:
            assert op._backward is not None
            return op._backward(ctx, *grads)

    return Registered.apply


_registered: dict[str, CustomOpDef] = {}


def custom_op(
    name: str, fn: Callable[..., object] | None = None, /, *, mutates_args: object = (),
    device_types: object = None, schema: str | None = None,
) -> Any:  # fmt: skip
    """Register a function as the operator ``namespace::name``."""

    def register(function: Callable[..., object]) -> CustomOpDef:
        made = _registered[name] = CustomOpDef(name, function)
        namespace, _, short = name.partition("::")
        _operators.register(namespace, short.partition(".")[0], made)
        return made

    return register if fn is None else register(fn)


def triton_op(
    name: str, fn: Any = None, /, *, mutates_args: object = (), schema: Any = None
) -> Any:
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def register_fake(
    op: object, func: object = None, /, *, lib: object = None, **options: object
) -> Any:
    """Types are found by running the function, so its description is not used."""
    return func if func is not None else lambda function: function


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Callable[..., object], /, *, setup_context: Any = None, lib: object = None
) -> None:
    """The derivative of a registered operator."""
    made = _registered[op] if isinstance(op, str) else op
    made.register_autograd(backward, setup_context=setup_context)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: object = None) -> Any:
    """Another function of a registered operator, for a device."""
    made = _registered[op] if isinstance(op, str) else op
    return made.register_kernel(device_types, func)


def register_vmap(op: object, func: object = None, /, *, lib: object = None) -> Any:
    return func if func is not None else lambda function: function


def define(qualname: str, schema: str, *, lib: object = None, tags: object = ()) -> None:
    """Declare an operator; :func:`impl` gives its function."""


def impl(qualname: str, types: object, func: Any = None, *, lib: object = None) -> Any:
    """Give a declared operator its function."""
    name = qualname.partition("(")[0]
    if types not in ("CPU", "cpu", "default", "CompositeImplicitAutograd"):
        return func if func is not None else lambda function: function
    return custom_op(name, func)


class Library:
    """A namespace of operators."""

    dispatch_key: str
    kind: str
    ns: str

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: object = ()) -> str:
        return schema.partition("(")[0]

    def impl(self, op_name: Any, fn: object, dispatch_key: str = "", **options: object) -> None:
        name = op_name if "::" in str(op_name) else f"{self.ns}::{op_name}"
        impl(name, dispatch_key or self.dispatch_key or "CPU", fn)


def wrap_triton(triton_kernel: object, /) -> Any:
    return triton_kernel


def infer_schema(
    prototype_function: Callable[..., object],
    /,
    *,
    mutates_args: object,
    op_name: str | None = None,
) -> str:
    """A schema that names the function; evergrad reads none."""
    return f"{op_name or prototype_function.__name__}(...)"


__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "impl", "impl_abstract", "infer_schema",
    "register_autograd", "register_fake", "register_kernel", "register_vmap", "triton_op",
    "wrap_triton",
]  # fmt: skip
