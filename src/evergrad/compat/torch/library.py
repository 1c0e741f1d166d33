"""Operators that packages register: Python functions with a schema, a derivative and a rule for
``vmap``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from evergrad.amp import autocast_mode
from evergrad.autograd.function import Function
from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_leaves, tree_map

from . import _operators
from .op_schema import FunctionSchema, infer_schema, parse_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evergrad.core.dtypes import dtype
    from evergrad.core.types import AnyFunction


class _Overload(Protocol):
    """What ``torch.ops`` has for an operator."""

    def name(self) -> str: ...


# How an operator is named.
_Operator: TypeAlias = "str | CustomOpDef | _Overload"

# Dispatch keys of a kernel that runs here, and of one that also differentiates.
_KERNELS = ("", "CPU", "cpu", "default", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
_AUTOGRAD = ("Autograd", "AutogradCPU")


class CustomOpDef:
    """A registered operator: calling it calls its function, with the arguments as its schema
    orders them."""

    def __init__(
        self, name: str, function: Callable[..., object] | None, schema: FunctionSchema | None
    ) -> None:
        self._qualname = name
        self._name = name.rpartition("::")[2]
        self._schema = schema
        self._init_fn = self._function = function
        self._wrapper: Callable[..., object] | None = None  # of the key "Autograd"
        self._is_wrapped = False
        self._backward: Callable[..., object] | None = None
        self._setup: Callable[..., object] | None = None
        self._vmap: Callable[..., object] | None = None
        self._cast_to: dict[str, dtype] = {}
        self._applied: type[Function] | None = None
        self.__name__: str = self._name
        self.__doc__ = getattr(function, "__doc__", None)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self._schema is not None:
            args, kwargs = self._schema.bind(args, kwargs)
        if self._cast_to and autocast_mode.is_autocast_enabled("cpu"):
            return self._call_cast(args, kwargs)
        if self._wrapper is not None and not self._is_wrapped:
            return self._call_wrapped(args, kwargs)
        if self._backward is None and self._vmap is None:
            return self._kernel()(*args, **kwargs)
        if self._applied is None:
            self._applied = _function_class(self)
        # A Function takes positions only; keywords of the operator go through its context.
        return self._applied.apply(kwargs, *args)

    def _kernel(self) -> Callable[..., object]:
        if self._function is None:
            raise NotImplementedError(
                f"Could not run '{self._qualname}' with arguments from the 'CPU' backend. "
                "No kernel was registered for it."
            )
        return self._function

    def _call_wrapped(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """The function of the key "Autograd", in which the operator means its kernel."""
        assert self._wrapper is not None
        self._is_wrapped = True
        try:
            return self._wrapper(*args, **kwargs)
        finally:
            self._is_wrapped = False

    def _call_cast(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """Under autocast: floating-point arguments in the type that was registered."""
        kind = self._cast_to["cpu"]

        def cast(value: object) -> object:
            if not isinstance(value, Tensor) or not value.is_floating_point():
                return value
            return value if value.dtype.name == "float64" else value.to(kind)

        with autocast_mode.autocast("cpu", enabled=False):
            return self(*tree_map(cast, args), **tree_map(cast, kwargs))

    @property
    def _opoverload(self) -> Any:
        namespace, _, name = self._qualname.partition("::")
        return getattr(_operators.__getattr__(namespace), name).default

    def register_fake(self, fn: AnyFunction, /) -> AnyFunction:
        """Types are found by running the function, so its description is not used."""
        return fn

    def register_kernel(
        self, device_types: str | Iterable[str] | None, fn: AnyFunction | None = None, /
    ) -> AnyFunction:
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
        if self._schema is not None and self._schema.is_mutable:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self} "
                f"with schema {self._schema}. Please create a functional operator and register an "
                "autograd formula for that."
            )
        self._backward, self._setup, self._applied = backward, setup_context, None

    def register_vmap(self, func: AnyFunction | None = None) -> AnyFunction:
        """``func(info, in_dims, *args)`` gives the results of a batch and their dimensions."""

        def register(function: Callable[..., object]) -> Callable[..., object]:
            self._vmap, self._applied = function, None
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type: str, cast_inputs: dtype) -> None:
        """The floating-point type of the arguments under autocast on a device."""
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self._cast_to[device_type] = cast_inputs

    def register_torch_dispatch(
        self, torch_dispatch_class: object, fn: AnyFunction | None = None, /
    ) -> AnyFunction:
        """Nothing here dispatches below the surface: the function is returned."""
        return fn if fn is not None else _unchanged

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Inside, the kernel of a device or else the function first registered runs."""
        former = self._function
        if device_type == "cpu" and not enabled:
            self._function = self._init_fn
        try:
            yield
        finally:
            self._function = former

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


def _function_class(op: CustomOpDef) -> type[Function]:
    """The operator as an ``autograd.Function`` whose first argument are the keywords."""

    class Registered(Function):
        @staticmethod
        def forward(kwargs: dict[str, object], *args: object) -> Any:
            return op._kernel()(*args, **kwargs)

        @staticmethod
        def setup_context(ctx: object, inputs: tuple[Any, ...], output: object) -> None:
            kwargs, *args = inputs
            if op._setup is None:
                return
            if kwargs:
                op._setup(ctx=ctx, inputs=tuple(args), keyword_only_inputs=kwargs, output=output)
            else:
                op._setup(ctx=ctx, inputs=tuple(args), output=output)

        @staticmethod
        def backward(ctx: object, *grads: object) -> Any:
            if op._backward is None:
                raise RuntimeError(
                    f"Trying to backward through {op._qualname}.default but no autograd formula "
                    "was registered. Please use register_autograd to add one."
                )
            found = op._backward(ctx, *grads)
            return (None, *found) if isinstance(found, tuple | list) else (None, found)

    def vmap(info: Any, in_dims: Any, kwargs: dict[str, object], *args: object) -> Any:
        assert op._vmap is not None
        return op._vmap(info, in_dims[1:], *args, **kwargs)

    if op._vmap is not None:
        Registered.vmap = staticmethod(vmap)  # type: ignore[method-assign]
    else:
        Registered.generate_vmap_rule = True
    name = op._qualname.replace("::", "_").replace(".", "_")
    Registered.__name__ = Registered.__qualname__ = f"GeneratedBackwardFor_{name}_default"
    return Registered


_registered: dict[str, CustomOpDef] = {}


def _declare(
    name: str, function: Callable[..., object] | None, schema: FunctionSchema | None
) -> CustomOpDef:
    made = _registered[name] = CustomOpDef(name, function, schema)
    namespace, _, short = name.partition("::")
    _operators.register(namespace, short.partition(".")[0], made)
    return made


def _find(op: _Operator) -> CustomOpDef:
    """The operator of a name, of an overload, or itself."""
    if isinstance(op, CustomOpDef):
        return op
    name = op if isinstance(op, str) else op.name()
    found = _registered.get(name) or _registered.get(name.removesuffix(".default"))
    if found is None:
        raise RuntimeError(f"operator {name} does not exist: define it first")
    return found


def _check_name(name: str) -> None:
    namespace, colons, short = name.partition("::")
    if not (namespace and colons and short):
        raise ValueError(
            "Expected `torch.library.define` or `custom_op` to be given a name of the form "
            f'"namespace::name", got: {name}. Operators live in a namespace: "mylib::name".'
        )


def custom_op(
    name: str, fn: Callable[..., object] | None = None, /, *,
    mutates_args: str | Iterable[str] = (), device_types: object = None,
    schema: str | None = None, tags: object = None,
) -> Any:  # fmt: skip
    """Register a function as the operator ``namespace::name``; its schema is read from its
    annotations."""

    def register(function: Callable[..., object]) -> CustomOpDef:
        _check_name(name)
        text = schema or infer_schema(function, mutates_args=mutates_args)
        return _declare(name, function, parse_schema(name + text))

    return register if fn is None else register(fn)


def triton_op(
    name: str, fn: AnyFunction | None = None, /, *, mutates_args: str | Iterable[str] = (),
    schema: str | None = None,
) -> Any:  # fmt: skip
    """Register a function as an operator; there is no Triton here."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def _unchanged(function: AnyFunction) -> AnyFunction:
    return function


def register_fake(
    op: object, func: AnyFunction | None = None, /, *, lib: object = None, **options: object
) -> AnyFunction:
    """Types are found by running the function, so its description is not used."""
    return _unchanged if func is None else func


impl_abstract = register_fake


def register_autograd(
    op: _Operator, backward: AnyFunction, /, *, setup_context: AnyFunction | None = None,
    lib: object = None,
) -> None:  # fmt: skip
    """The derivative of a registered operator."""
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_autocast(
    op: _Operator, device_type: str, cast_inputs: dtype, /, *, lib: object = None
) -> None:
    """The floating-point type of an operator's arguments under autocast."""
    _find(op).register_autocast(device_type, cast_inputs)


def register_kernel(
    op: _Operator, device_types: str | Iterable[str] | None, func: AnyFunction | None = None, /, *,
    lib: object = None,
) -> AnyFunction:  # fmt: skip
    """Another function of a registered operator, for a device."""
    return _find(op).register_kernel(device_types, func)


def register_vmap(
    op: _Operator, func: AnyFunction | None = None, /, *, lib: object = None
) -> AnyFunction:
    """How a registered operator takes a batch: ``func(info, in_dims, *args)``."""
    return _find(op).register_vmap(func)


def register_torch_dispatch(
    op: _Operator, torch_dispatch_class: object, func: AnyFunction | None = None, /, *,
    lib: object = None,
) -> AnyFunction:  # fmt: skip
    """Nothing here dispatches below the surface: the function is returned."""
    return _find(op).register_torch_dispatch(torch_dispatch_class, func)


def define(
    qualname: str | Library, schema: str, *unused: object, lib: object = None, tags: object = ()
) -> AnyFunction | None:
    """Declare an operator; :func:`impl` gives its function. With a library in place of a name it
    is a decorator that gives the function too."""
    if isinstance(qualname, Library):
        name, library = qualname.define(schema), qualname

        def register(function: Callable[..., object]) -> Callable[..., object]:
            library.impl(name, function)
            return function

        return register
    _check_name(qualname)
    _declare(qualname, None, parse_schema(qualname + schema))
    return None


def impl(
    qualname: str | Library, types: Any, func: Any = None, *, lib: object = None
) -> AnyFunction:
    """Give a declared operator its function: ``impl("space::name", "cpu")``, or
    ``impl(library, "name", key)``."""
    if isinstance(qualname, Library):
        key = func or qualname.dispatch_key

        def register(function: Callable[..., object]) -> Callable[..., object]:
            qualname.impl(types, function, key)
            return function

        return register
    return _implement(qualname, types) if func is None else _implement(qualname, types)(func)


def _implement(
    qualname: str, types: str | Iterable[str]
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    def register(function: Callable[..., object]) -> Callable[..., object]:
        name = qualname.partition("(")[0]
        op = _registered.get(name) or _declare(name, None, None)
        keys = (types,) if isinstance(types, str) else tuple(types)
        if any(key in _KERNELS for key in keys):
            op._function = function
        elif any(key in _AUTOGRAD for key in keys):
            op._wrapper = function
        return function

    return register


class Library:
    """A namespace of operators."""

    dispatch_key: str
    kind: str
    ns: str

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError("Unsupported kind: ", kind)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._names: list[str] = []

    def define(self, schema: str, alias_analysis: str = "", *, tags: object = ()) -> str:
        """Declare an operator; its name is returned."""
        found = parse_schema(f"{self.ns}::{schema.strip()}")
        _declare(found.name, None, found)
        self._names.append(found.name)
        return found.name.rpartition("::")[2]

    def impl(
        self, op_name: str | _Overload, fn: object, dispatch_key: str = "", **options: object
    ) -> None:
        """Give an operator its function."""
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        text = op_name if isinstance(op_name, str) else op_name.name()
        name = text if "::" in text else f"{self.ns}::{text}"
        _implement(name, dispatch_key or self.dispatch_key or "")(fn)

    def fallback(self, fn: object, dispatch_key: str = "", **options: object) -> None:
        """Every operator has its function: there is nothing to fall back from."""

    def _register_fake(self, op_name: object, fn: object, *args: object, **options: object) -> None:
        """Types are found by running the function."""

    def _destroy(self) -> None:
        """Forget the operators that this library declared."""
        for name in self._names:
            _registered.pop(name, None)
            _operators.forget(*name.split("::"))
        self._names.clear()

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"


@contextmanager
def _scoped_library(ns: str, kind: str, dispatch_key: str = "") -> Iterator[Library]:
    made = Library(ns, kind, dispatch_key)
    try:
        yield made
    finally:
        made._destroy()


def fallthrough_kernel() -> None:
    """A placeholder for "the next function"; never called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def wrap_triton(triton_kernel: AnyFunction, /) -> AnyFunction:
    return triton_kernel


class OpCheckError(Exception):
    """A custom operator does not do what its schema says."""


_TESTS = (
    "test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic",
)  # fmt: skip


def opcheck(
    op: AnyFunction, args: tuple[object, ...], kwargs: dict[str, object] | None = None, *,
    test_utils: str | Iterable[str] = _TESTS, raise_exception: bool = True,
    atol: float | None = None, rtol: float | None = None,
) -> dict[str, str | Exception]:  # fmt: skip
    """Check that an operator writes only what its schema says, returns none of its arguments, and
    that its derivative runs. What each test found is returned: ``"SUCCESS"`` or the error."""
    named = kwargs or {}
    results: dict[str, str | Exception] = {}
    for test in (test_utils,) if isinstance(test_utils, str) else tuple(test_utils):
        if test not in _TESTS:
            raise ValueError(f"opcheck(test_utils=...): {test} is not one of {_TESTS}")
        try:
            _check_schema(op, args, named) if test == "test_schema" else _check_run(op, args, named)
            results[test] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {test} failed with {error}") from error
            results[test] = error
    return results


def _check_schema(op: AnyFunction, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    schema = _find(op)._schema  # type: ignore[arg-type]
    given = [v.detach().clone() if isinstance(v, Tensor) else v for v in args]
    before = [v.clone() if isinstance(v, Tensor) else v for v in given]
    results = [r for r in tree_leaves(op(*given, **kwargs)) if isinstance(r, Tensor)]
    arguments = schema.arguments if schema is not None else ()
    for argument, value, former in zip(arguments, given, before, strict=False):
        if argument.is_write or not (isinstance(value, Tensor) and isinstance(former, Tensor)):
            continue
        if not value.equal(former):
            raise RuntimeError(
                f"Argument {argument.name} is not defined as mutable but was mutated"
            )
        if any(r.untyped_storage() == value.untyped_storage() for r in results):
            raise RuntimeError(
                f"Argument {argument.name} is not defined to alias output but was aliasing"
            )


def _check_run(op: AnyFunction, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    given = [
        v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, Tensor) else v
        for v in args
    ]
    results = [r for r in tree_leaves(op(*given, **kwargs)) if isinstance(r, Tensor)]
    roots = [r for r in results if r.requires_grad and r.is_floating_point()]
    for root in roots:
        root.sum().backward(retain_graph=True)


__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "impl",
    "impl_abstract", "infer_schema", "opcheck", "register_autocast", "register_autograd",
    "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op",
    "wrap_triton",
]  # fmt: skip
