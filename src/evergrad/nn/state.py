"""Saving and loading a module's tensors: ``state_dict`` and ``load_state_dict`` as in PyTorch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.nn.hooks import HookTables
from evergrad.nn.parameter import Parameter, is_lazy

_EXTRA_STATE = "_extra_state"


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]


class _IncompatibleKeys(_Keys):
    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class _Loading:
    """What one ``load_state_dict`` has found wrong so far."""

    def __init__(self, strict: bool, assign: bool) -> None:
        self.strict = strict
        self.assign = assign
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []


class ModuleState:
    """The part of a module that saves and loads."""

    _version: int = 1
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _hooks: HookTables | None

    # -- saving -----------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not ModuleState.get_extra_state

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if self._has_extra_state():
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """All parameters and persistent buffers by their dotted names, sharing memory."""
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        if self._hooks is not None:
            for hook in list(self._hooks.state_pre.values()):
                hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars
                )
        if self._hooks is not None:
            for hook in list(self._hooks.state.values()):
                changed = hook(self, destination, prefix, metadata)
                destination = destination if changed is None else changed
        return destination  # type: ignore[no-any-return]

    # -- loading ----------------------------------------------------------------------------

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy values into the parameters and buffers (or, with ``assign``, take them over).

        If anything does not fit nothing is changed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        given = OrderedDict(state_dict)
        loading = _Loading(strict, assign)
        plan: list[tuple[Any, str, Any]] = []
        self._collect(given, "", metadata, loading, plan)
        problems = list(loading.errors)
        if strict:
            for words, keys in (
                ("Unexpected key(s) in state_dict: ", loading.unexpected),
                ("Missing key(s) in state_dict: ", loading.missing),
            ):
                if keys:
                    problems.insert(0, words + ", ".join(f'"{k}"' for k in keys) + ". ")
        if problems:
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
                + "\n\t".join(problems)
            )
        for owner, name, value in plan:
            owner._load_value(name, value, assign)
        result = _IncompatibleKeys(loading.missing, loading.unexpected)
        self._after_loading(result)
        return result

    def _after_loading(self, result: _IncompatibleKeys) -> None:
        for module in self._modules.values():
            if module is not None:
                module._after_loading(result)
        if self._hooks is not None:
            for hook in list(self._hooks.load_post.values()):
                hook(self, result)

    def _collect(
        self, given: dict[str, Any], prefix: str, metadata: Any, loading: _Loading, plan: list[Any]
    ) -> None:
        """Find what this module and those below take, without changing anything yet."""
        local = {} if metadata is None else metadata.get(prefix[:-1], {})
        self._load_from_state_dict(
            given, prefix, local, loading.strict, loading.missing, loading.unexpected,
            loading.errors, plan,
        )  # fmt: skip
        for name, module in self._modules.items():
            if module is not None:
                module._collect(given, prefix + name + ".", metadata, loading, plan)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
        plan: list[Any] | None = None,
    ) -> None:  # fmt: skip
        """Match this module's own tensors with the entries under its prefix.

        Subclasses that rename old entries do so here and then call this one.
        """
        if self._hooks is not None:
            for hook in list(self._hooks.load_pre.values()):
                hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                     error_msgs)  # fmt: skip
        plan = [] if plan is None else plan
        own = {**self._parameters, **{
            name: b for name, b in self._buffers.items()
            if name not in self._non_persistent_buffers_set
        }}  # fmt: skip
        own = {name: value for name, value in own.items() if value is not None}
        for name, tensor in own.items():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            value = state_dict[key]
            problem = _misfit(key, tensor, value)
            if problem:
                error_msgs.append(problem)
            else:
                plan.append((self, name, value))
        if self._has_extra_state():
            if prefix + _EXTRA_STATE in state_dict:
                plan.append((self, _EXTRA_STATE, state_dict[prefix + _EXTRA_STATE]))
            else:
                missing_keys.append(prefix + _EXTRA_STATE)
        self._find_unexpected(state_dict, prefix, own, unexpected_keys)

    def _find_unexpected(
        self, state_dict: dict[str, Any], prefix: str, own: Any, unexpected: list[str]
    ) -> None:
        for key in state_dict:
            if not key.startswith(prefix):
                continue
            name, dot, _ = key[len(prefix) :].partition(".")
            if dot:
                if name not in self._modules:
                    unexpected.append(key)
            elif name not in own and not (name == _EXTRA_STATE and self._has_extra_state()):
                if name not in self._modules:
                    unexpected.append(key)

    def _load_value(self, name: str, value: Any, assign: bool) -> None:
        if name == _EXTRA_STATE and self._has_extra_state():
            self.set_extra_state(value)
            return
        table: dict[str, Any] = self._parameters if name in self._parameters else self._buffers
        current = table[name]
        if is_lazy(current):
            current.materialize(value.shape, dtype=value.dtype)
        if assign:
            if isinstance(current, Parameter) and not isinstance(value, Parameter):
                value = Parameter(value, current.requires_grad)
            table[name] = value
            return
        with using(grad=False):
            current.copy_(value)


def _misfit(key: str, tensor: Any, value: Any) -> str:
    if not isinstance(value, Tensor):
        return (
            f'While copying the parameter named "{key}", expected evergrad.Tensor from checkpoint '
            f"but received {type(value)}"
        )
    if is_lazy(tensor) or tensor._type.shape == value._type.shape:
        return ""
    if not tensor._type.shape and value._type.shape == (1,):
        return ""
    return (
        f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the "
        f"shape in current model is {tensor.shape}."
    )
