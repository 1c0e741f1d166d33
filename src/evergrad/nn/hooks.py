"""Hooks on modules: before and after ``forward``, on backward, around saving and loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from evergrad.autograd.function import Function
from evergrad.core.node import RemovableHandle
from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_flatten, tree_unflatten

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
        self.load_pre: dict[int, Hook] = {}
        self.load_post: dict[int, Hook] = {}


def _first(table: dict[int, Any], handle: RemovableHandle) -> None:
    """Move the newest entry to the front."""
    entry = table.pop(handle.id)
    rest = dict(table)
    table.clear()
    table[handle.id] = entry
    table.update(rest)


class ModuleHooks:
    """The part of a module that registers and calls hooks."""

    _hooks: HookTables | None

    def _tables(self) -> HookTables:
        if self._hooks is None:
            self.__dict__["_hooks"] = HookTables()
        assert self._hooks is not None
        return self._hooks

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; it may return other arguments."""
        table = self._tables().forward_pre
        handle = RemovableHandle(table, (hook, with_kwargs))
        if prepend:
            _first(table, handle)
        return handle

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:  # fmt: skip
        """Call ``hook(module, args, output)`` after ``forward``; it may return another output."""
        table = self._tables().forward
        handle = RemovableHandle(table, (hook, with_kwargs, always_call))
        if prepend:
            _first(table, handle)
        return handle

    def register_full_backward_pre_hook(
        self, hook: Hook, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the gradient passes through the module."""
        table = self._tables().backward_pre
        handle = RemovableHandle(table, hook)
        if prepend:
            _first(table, handle)
        return handle

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when the gradient has passed through."""
        table = self._tables().backward
        handle = RemovableHandle(table, hook)
        if prepend:
            _first(table, handle)
        return handle

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
        bound = self

        def with_module(*args: Any) -> Any:
            return hook(bound, *args)

        return RemovableHandle(self._tables().load_pre, with_module)

    def _register_load_state_dict_pre_hook(
        self, hook: Hook, with_module: bool = False
    ) -> RemovableHandle:
        if with_module:
            return self.register_load_state_dict_pre_hook(hook)
        return RemovableHandle(self._tables().load_pre, hook)

    def register_load_state_dict_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)`` after ``load_state_dict``."""
        return RemovableHandle(self._tables().load_post, hook)

    # -- calling ----------------------------------------------------------------------------

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tables = [t for t in (HookTables.everywhere, self._hooks) if t is not None]
        for table in tables:
            for hook, with_kwargs in list(table.forward_pre.values()):
                args, kwargs = _changed_input(hook, with_kwargs, self, args, kwargs)
        watch = _BackwardWatch(self, tables)
        args = watch.on_inputs(args)
        done = []
        try:
            result = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
            for table in tables:
                for key, (hook, with_kwargs, _) in list(table.forward.items()):
                    done.append(key)
                    given = (args, kwargs, result) if with_kwargs else (args, result)
                    changed = hook(self, *given)
                    result = result if changed is None else changed
        except Exception:
            self._call_despite_failure(tables, done, args, kwargs)
            raise
        return watch.on_outputs(result)

    def _call_despite_failure(
        self, tables: list[HookTables], done: list[int], args: Any, kwargs: Any
    ) -> None:
        for table in tables:
            for key, (hook, with_kwargs, always) in list(table.forward.items()):
                if always and key not in done:
                    hook(self, *((args, kwargs, None) if with_kwargs else (args, None)))


def _changed_input(
    hook: Hook, with_kwargs: bool, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
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

    @staticmethod
    def forward(ctx: Any, on_grads: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.on_grads = on_grads
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, *ctx.on_grads(grads))


class _BackwardWatch:
    """Calls the backward hooks of one call of a module."""

    def __init__(self, module: Any, tables: list[HookTables]) -> None:
        self.module = module
        self.before = [hook for table in tables for hook in table.backward_pre.values()]
        self.after = [hook for table in tables for hook in table.backward.values()]
        self.grad_output: tuple[Any, ...] = ()
        self.has_inputs = False

    def on_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self.after:
            return args
        leaves, spec = tree_flatten(args)
        at = [i for i, a in enumerate(leaves) if isinstance(a, Tensor) and a.requires_grad]
        if not at:
            return args
        self.has_inputs = True
        passed = _Pass.apply(self.grads_in, *[leaves[i] for i in at])
        for i, tensor in zip(at, passed, strict=True):
            leaves[i] = tensor
        return tuple(tree_unflatten(leaves, spec))

    def on_outputs(self, result: Any) -> Any:
        if not self.before and not self.after:
            return result
        leaves, spec = tree_flatten(result)
        at = [i for i, a in enumerate(leaves) if isinstance(a, Tensor) and a.requires_grad]
        if not at:
            return result
        passed = _Pass.apply(self.grads_out, *[leaves[i] for i in at])
        for i, tensor in zip(at, passed, strict=True):
            leaves[i] = tensor
        return tree_unflatten(leaves, spec)

    def grads_out(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.before:
            changed = hook(self.module, grads)
            if changed is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        self.grad_output = grads
        if not self.has_inputs:
            for hook in self.after:
                hook(self.module, (), grads)
        return grads

    def grads_in(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.after:
            changed = hook(self.module, grads, self.grad_output)
            if changed is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        return grads


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
