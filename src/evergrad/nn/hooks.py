"""Hooks on modules: before and after ``forward``, on backward, around saving and loading."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, ClassVar

from evergrad.autograd.function import Function
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import RemovableHandle
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.extension import provides

if TYPE_CHECKING:
    from evergrad.autograd.function import FunctionCtx
    from evergrad.core.types import Args, Leaves

Hook = Callable[..., Any]


class HookTables:
    """The hooks of one module, each with its options."""

    __slots__ = (
        "backward", "backward_pre", "forward", "forward_pre", "load_post", "load_pre", "state",
        "state_pre",
    )  # fmt: skip

    # Hooks that hold for every module; made by the functions at the end of this file.
    everywhere: ClassVar[HookTables | None] = None

    def __init__(self) -> None:
        self.forward_pre: dict[int, tuple[Hook, bool]] = {}
        self.forward: dict[int, tuple[Hook, bool, bool]] = {}
        self.backward_pre: dict[int, Hook] = {}
        self.backward: dict[int, Hook] = {}
        self.state_pre: dict[int, Hook] = {}
        self.state: dict[int, Hook] = {}
        self.load_pre: dict[int, tuple[Hook, bool]] = {}
        self.load_post: dict[int, Hook] = {}


@provides("global_module_hooks")
def global_hooks() -> HookTables | None:
    """The hooks of all modules, if there are any."""
    return HookTables.everywhere


# What the entries of a table have besides the hook, as it is by default.
_FLAGS = {"forward": (False, False), "forward_pre": (False,), "load_pre": (False,)}


class NamedHooks(MutableMapping[int, Hook]):
    """A table of a module's hooks without their flags; what is written to it is written there."""

    def __init__(self, module: ModuleHooks, table: str) -> None:
        self._module, self._table = module, table

    def _entries(self) -> dict[int, Any]:
        hooks = self._module.__dict__.get("_hooks")
        return {} if hooks is None else getattr(hooks, self._table)

    def __getitem__(self, key: int) -> Hook:
        entry = self._entries()[key]
        hook: Hook = entry[0] if isinstance(entry, tuple) else entry
        return hook

    def __setitem__(self, key: int, hook: Hook) -> None:
        flags = _FLAGS.get(self._table)
        entries = getattr(self._module._tables(), self._table)
        entries[key] = hook if flags is None else (hook, *flags)
        MUTATIONS.advance()

    def __delitem__(self, key: int) -> None:
        del self._entries()[key]
        MUTATIONS.advance()

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def __repr__(self) -> str:
        return repr(dict(self))


def _named_hooks(table: str) -> Any:
    def put(module: ModuleHooks, hooks: Mapping[int, Hook]) -> None:
        found = NamedHooks(module, table)
        found.clear()
        found.update(hooks)

    return property(lambda module: NamedHooks(module, table), put)


class ModuleHooks:
    """The part of a module that registers and calls hooks."""

    _hooks: HookTables | None

    # The tables under PyTorch's private names, as packages and users edit them.

    _forward_hooks = _named_hooks("forward")
    _forward_pre_hooks = _named_hooks("forward_pre")
    _backward_hooks = _named_hooks("backward")
    _backward_pre_hooks = _named_hooks("backward_pre")
    _state_dict_hooks = _named_hooks("state")
    _load_state_dict_pre_hooks = _named_hooks("load_pre")
    _load_state_dict_post_hooks = _named_hooks("load_post")

    def _tables(self) -> HookTables:
        if self._hooks is None:
            self.__dict__["_hooks"] = HookTables()
        assert self._hooks is not None
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; it may return other arguments."""
        return RemovableHandle(self._tables().forward_pre, (hook, with_kwargs), first=prepend)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:  # fmt: skip
        """Call ``hook(module, args, output)`` after ``forward``; it may return another output."""
        return RemovableHandle(
            self._tables().forward, (hook, with_kwargs, always_call), first=prepend
        )

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the gradient passes through the module."""
        return RemovableHandle(self._tables().backward_pre, hook, first=prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradient has passed through."""
        return RemovableHandle(self._tables().backward, hook, first=prepend)

    register_backward_hook = register_full_backward_hook

    def register_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before ``state_dict`` collects."""
        return RemovableHandle(self._tables().state_pre, hook)

    def register_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict``."""
        return RemovableHandle(self._tables().state, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)``
        before a module loads its part."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(
        self, hook: Hook, with_module: bool = False
    ) -> RemovableHandle:
        return RemovableHandle(self._tables().load_pre, (hook, with_module))

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after ``load_state_dict``."""
        return RemovableHandle(self._tables().load_post, hook)

    # -- calling ----------------------------------------------------------------------------

    def _call_with_hooks(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        tables = [t for t in (HookTables.everywhere, self._hooks) if t is not None]
        for table in tables:
            for hook, with_kwargs in list(table.forward_pre.values()):
                args, kwargs = _changed_input(hook, with_kwargs, self, args, kwargs)
        watch = _BackwardWatch(self, tables)
        args = watch.on_inputs(args)
        waiting = {key: entry for table in tables for key, entry in table.forward.items()}
        result = None
        try:
            result = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
            for key in list(waiting):
                hook, with_kwargs, _ = waiting.pop(key)
                given = (args, kwargs, result) if with_kwargs else (args, result)
                changed = hook(self, *given)
                result = result if changed is None else changed
        except Exception:
            for hook, with_kwargs, always in waiting.values():
                if always:
                    given = (args, kwargs, result) if with_kwargs else (args, result)
                    _call_despite_failure(hook, self, *given)
            raise
        return watch.on_outputs(result)


def _call_despite_failure(hook: Hook, *given: object) -> None:
    try:
        hook(*given)
    except Exception as error:
        warnings.warn(
            "module forward hook with ``always_call=True`` raised an exception that was silenced "
            f"as another error was raised in forward: {error}",
            stacklevel=4,
        )


def _changed_input(
    hook: Hook,
    with_kwargs: bool,
    module: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> tuple[tuple[object, ...], dict[str, object]]:
    if with_kwargs:
        changed = hook(module, args, kwargs)
        if changed is None:
            return args, kwargs
        if not (isinstance(changed, tuple) and len(changed) == 2):
            raise RuntimeError(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                f"{changed}."
            )
        return changed
    changed = hook(module, args)
    if changed is None:
        return args, kwargs
    return (changed if isinstance(changed, tuple) else (changed,)), kwargs


class _Pass(Function):
    """The identity, as a place in the graph where a module's gradients can be seen together."""

    calls_hooks = True

    @staticmethod
    def forward(
        ctx: FunctionCtx, on_grads: Callable[..., object], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.on_grads = on_grads
        passed = tuple(t.view_as(t) for t in tensors)
        ctx.mark_non_differentiable(
            *[p for p, t in zip(passed, tensors, strict=True) if not t.requires_grad]
        )
        return passed

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: object) -> object:
        return (None, *ctx.on_grads(grads))


def _through(values: Args, on_grads: Callable[..., object]) -> tuple[Any, list[int]]:
    """The values with their tensors passed through one node, and where those tensors are."""
    at = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not STATE.get().grad or not any(values[i].requires_grad for i in at):
        return values, []
    found = list(values)
    for i, passed in zip(at, _Pass.apply(on_grads, *[values[i] for i in at]), strict=True):
        found[i] = passed
    make = getattr(values, "_make", tuple)  # named tuples stay what they are
    return make(found), at


class _BackwardWatch:
    """Calls the backward hooks of one call of a module.

    Hooks see one entry per argument and per result, ``None`` where there is no gradient.
    """

    def __init__(self, module: object, tables: list[HookTables]) -> None:
        self.module = module
        self.before = [hook for table in tables for hook in table.backward_pre.values()]
        self.after = [hook for table in tables for hook in table.backward.values()]
        self.grad_output: tuple[object, ...] | None = None
        self.inputs = self.outputs = 0
        self.input_places: list[int] = []
        self.output_places: list[int] = []

    def on_inputs(self, args: tuple[object, ...]) -> tuple[object, ...]:
        if not self.before and not self.after:
            return args
        self.inputs = len(args)
        args, self.input_places = _through(args, self.grads_in)
        return args

    def on_outputs(self, result: object) -> object:
        if not self.before and not self.after:
            return result
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(result)}",
                stacklevel=4,
            )
        values = result if isinstance(result, tuple) else (result,)
        self.outputs = len(values)
        passed, self.output_places = _through(values, self.grads_out)
        return passed if isinstance(result, tuple) else passed[0]

    def grads_out(self, grads: tuple[object, ...]) -> tuple[object, ...]:
        packed = _spread(grads, self.output_places, self.outputs)
        for hook in self.before:
            packed = _replaced(hook(self.module, packed), packed, "pre hook", "grad_output")
        self.grad_output = packed
        if not self.input_places:
            self._call_without_inputs(packed)
        return tuple(packed[i] for i in self.output_places)

    def _call_without_inputs(self, grad_output: tuple[object, ...]) -> None:
        self.grad_output = None
        if self.after:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module "
                "outputs since no inputs require gradients.",
                stacklevel=2,
            )
        for hook in self.after:
            found = hook(self.module, (None,) * self.inputs, grad_output)
            if found is not None and any(grad is not None for grad in found):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always "
                    "return None or None for all gradients."
                )

    def grads_in(self, grads: tuple[object, ...]) -> tuple[object, ...]:
        if self.grad_output is None:  # a gradient that did not come through the outputs
            return grads
        packed = _spread(grads, self.input_places, self.inputs)
        for hook in self.after:
            found = hook(self.module, packed, self.grad_output)
            packed = _replaced(found, packed, "hook", "grad_input")
        self.grad_output = None
        return tuple(packed[i] for i in self.input_places)


def _spread(values: tuple[object, ...], places: list[int], size: int) -> tuple[object, ...]:
    found: Leaves = [None] * size
    for place, value in zip(places, values, strict=True):
        found[place] = value
    return tuple(found)


def _replaced(
    found: tuple[Tensor, ...] | None, former: tuple[object, ...], hook: str, what: str
) -> tuple[object, ...]:
    """The gradients a hook returned, or the former ones if it returned none."""
    if found is None:
        return former
    if len(found) != len(former):
        raise RuntimeError(
            f"Backward {hook} returned an invalid number of {what}, got {len(found)}, but "
            f"expected {len(former)}"
        )
    return tuple(found)


def _everywhere() -> HookTables:
    if HookTables.everywhere is None:
        HookTables.everywhere = HookTables()
    return HookTables.everywhere


def register_module_forward_pre_hook(hook: Hook) -> RemovableHandle:
    """A forward pre-hook on every module."""
    return RemovableHandle(_everywhere().forward_pre, (hook, False))


def register_module_forward_hook(
    hook: Hook, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """A forward hook on every module."""
    return RemovableHandle(_everywhere().forward, (hook, with_kwargs, always_call))


def register_module_full_backward_hook(hook: Hook) -> RemovableHandle:
    """A backward hook on every module."""
    return RemovableHandle(_everywhere().backward, hook)


def register_module_full_backward_pre_hook(hook: Hook) -> RemovableHandle:
    """A backward pre-hook on every module."""
    return RemovableHandle(_everywhere().backward_pre, hook)


register_module_backward_hook = register_module_full_backward_hook


# -- what modules register -----------------------------------------------------------------------

# Under PyTorch's private names, which packages read.
_global_parameter_registration_hooks: dict[int, Hook] = {}
_global_buffer_registration_hooks: dict[int, Hook] = {}
_global_module_registration_hooks: dict[int, Hook] = {}


@provides("registration_hooks")
def registration_hooks() -> list[dict[int, Hook]]:
    """The tables of hooks on what modules register."""
    return [
        _global_parameter_registration_hooks,
        _global_buffer_registration_hooks,
        _global_module_registration_hooks,
    ]


def registered(hooks: dict[int, Hook], module: object, name: str, value: object) -> Any:
    """What a module enters under a name: the value, or what a hook gives in its place."""
    for hook in hooks.values():
        other = hook(module, name, value)
        value = value if other is None else other
    return value


def register_module_parameter_registration_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, name, parameter)`` whenever a module gets a parameter; it may return
    another."""
    return RemovableHandle(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, name, buffer)`` whenever a module gets a buffer; it may return
    another."""
    return RemovableHandle(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Hook) -> RemovableHandle:
    """Call ``hook(module, name, submodule)`` whenever a module gets a submodule; it may return
    another."""
    return RemovableHandle(_global_module_registration_hooks, hook)
