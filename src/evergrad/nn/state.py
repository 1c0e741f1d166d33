"""Saving and loading a module's tensors: ``state_dict`` and ``load_state_dict`` as in PyTorch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.types import StateDict
from evergrad.nn.hooks import HookTables
from evergrad.nn.parameter import Parameter, is_lazy

# Under these keys training programs keep the state of the model in a checkpoint.
_PARTS_OF_CHECKPOINTS = ("model", "state_dict", "model_state_dict", "net", "weights")
_EXTRA_STATE = "_extra_state"

# Under this key a module's local metadata carry the list of what is going to be written.
_PLAN = "_plan"


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
    """What one ``load_state_dict`` is going to do and has found wrong so far."""

    def __init__(self, metadata: Any, assign: bool) -> None:
        self.metadata = {} if metadata is None else metadata
        self.assign = assign
        self.plan: list[tuple[Any, str, Any]] = []
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []

    def local_metadata(self, prefix: str) -> dict[str, object]:
        local = dict(self.metadata.get(prefix[:-1], {}))
        if self.assign:
            local["assign_to_params_buffers"] = True
        local[_PLAN] = self.plan
        return local

    def require_fit(self, module: object, strict: bool) -> None:
        """Raise if anything does not fit."""
        problems = list(self.errors)
        for words, keys in (
            ("Unexpected key(s) in state_dict: ", self.unexpected),
            ("Missing key(s) in state_dict: ", self.missing),
        ):
            if keys and strict:
                problems.insert(0, words + ", ".join(f'"{k}"' for k in keys) + ". ")
        if problems:
            if strict and self.unexpected:
                problems.append(_advice(self.missing, self.unexpected))
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(module).__name__}:\n\t"
                + "\n\t".join(filter(None, problems))
            )


def _advice(missing: Sequence[str], unexpected: Sequence[str]) -> str:
    """What the keys have in common if they are those of the module in another place."""
    if not missing:
        return ""
    wanted, given = missing[0], unexpected[0]
    if given.endswith("." + wanted):
        front = given.removesuffix(wanted)
        return (
            f'The keys given begin with "{front}". Load the rest of each: '
            f'{{key.removeprefix("{front}"): value for key, value in state_dict.items()}}.'
        )
    if wanted.endswith("." + given):
        front = wanted.removesuffix(given)
        return f'The keys expected begin with "{front}"; load into that submodule instead.'
    if "." not in given and given in _PARTS_OF_CHECKPOINTS:
        return f'This is a checkpoint with several parts; pass checkpoint["{given}"].'
    return ""


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
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: object) -> None:
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not ModuleState.get_extra_state

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = _saved(parameter, keep_vars)
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = _saved(buffer, keep_vars)
        if self._has_extra_state():
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(
        self, *args: object, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> StateDict:
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
        self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copy values into the parameters and buffers (or, with ``assign``, take them over).

        If anything does not fit nothing is changed, unless there are hooks to be called after
        loading: these may still take keys from the lists of missing and unexpected ones.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        loading = _Loading(getattr(state_dict, "_metadata", None), assign)
        self._collect(OrderedDict(state_dict), "", loading)
        hooks = self._load_post_hooks()
        if loading.errors or not hooks:
            loading.require_fit(self, strict)
        for owner, name, value in loading.plan:
            owner._load_value(name, value, assign)
        result = _IncompatibleKeys(loading.missing, loading.unexpected)
        for module, hook in hooks:
            if hook(module, result) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected "
                    "to return new values, if incompatible_keys need to be modified, it should be "
                    "done inplace."
                )
        loading.require_fit(self, strict)
        return result

    def _load_post_hooks(self) -> list[tuple[Any, Any]]:
        """The hooks to call after loading with their modules, children first."""
        found: list[tuple[Any, Any]] = []
        for module in self._modules.values():
            if module is not None:
                found += module._load_post_hooks()
        if self._hooks is not None:
            found += [(self, hook) for hook in self._hooks.load_post.values()]
        return found

    def _collect(self, given: dict[str, object], prefix: str, loading: _Loading) -> None:
        """Find what this module and those below take, without changing anything yet."""
        self._load_from_state_dict(
            given, prefix, loading.local_metadata(prefix), True, loading.missing,
            loading.unexpected, loading.errors,
        )  # fmt: skip
        for name, module in self._modules.items():
            if module is not None:
                below = prefix + name + "."
                own = {key: value for key, value in given.items() if key.startswith(below)}
                module._collect(own, below, loading)

    def _load_from_state_dict(
        self, state_dict: StateDict, prefix: str, local_metadata: Any, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Match this module's own tensors with the entries under its prefix.

        Subclasses that rename old entries do so here and then call this one. What fits is written
        when all modules have been matched; at once if it is called from elsewhere.
        """
        if self._hooks is not None:
            for hook, with_module in list(self._hooks.load_pre.values()):
                hook(*((self,) if with_module else ()), state_dict, prefix, local_metadata, strict,
                     missing_keys, unexpected_keys, error_msgs)  # fmt: skip
        plan: list[Any] = []
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
            elif not is_lazy(value):
                plan.append((self, name, value))
        if self._has_extra_state():
            if prefix + _EXTRA_STATE in state_dict:
                plan.append((self, _EXTRA_STATE, state_dict[prefix + _EXTRA_STATE]))
            else:
                missing_keys.append(prefix + _EXTRA_STATE)
        if strict:
            self._find_unexpected(state_dict, prefix, own, unexpected_keys)
        if _PLAN in local_metadata:
            local_metadata[_PLAN].extend(plan)
            return
        for owner, name, value in plan:
            owner._load_value(name, value, local_metadata.get("assign_to_params_buffers", False))

    def _find_unexpected(
        self,
        state_dict: StateDict,
        prefix: str,
        own: dict[str, Tensor | None],
        unexpected: list[str],
    ) -> None:
        for key in state_dict:
            if not key.startswith(prefix):
                continue
            name, dot, _ = key[len(prefix) :].partition(".")
            if dot:
                if name not in self._modules:
                    unexpected.append(key)
            elif (
                name not in own
                and name not in self._modules
                and not (name == _EXTRA_STATE and self._has_extra_state())
            ):
                unexpected.append(key)

    def _load_value(self, name: str, value: Tensor, assign: bool) -> None:
        if name == _EXTRA_STATE and self._has_extra_state():
            self.set_extra_state(value)
            return
        table: dict[str, Any] = self._parameters if name in self._parameters else self._buffers
        current = table[name]
        if is_lazy(current) and not assign:
            current.materialize(value.shape)
        if not current._type.shape and value._type.shape == (1,):
            value = value[0]
        if assign:
            if isinstance(current, Parameter):
                if not isinstance(value, Parameter):
                    value = Parameter(value, current.requires_grad)
                value.requires_grad_(current.requires_grad)
            table[name] = value
            return
        with using(grad=False):
            current.copy_(value)


def _saved(tensor: Tensor, keep_vars: bool) -> Tensor:
    return tensor if keep_vars or is_lazy(tensor) else tensor.detach()


def _misfit(key: str, tensor: Any, value: object) -> str:
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
