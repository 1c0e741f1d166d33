"""What all optimizers share: parameter groups, state, saving and loading, hooks.

A subclass states its update as a formula (:class:`~evergrad.core.eager.fused_update.FusedUpdate`)
and calls it for each parameter that has a gradient.
"""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import deepcopy
from operator import is_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from evergrad.core.compound import Compound
from evergrad.core.dtypes import float32, float64, get_default_dtype
from evergrad.core.eager.fused_update import FusedUpdate
from evergrad.core.functionalize import (
    SymbolicNumber,
    functionalizing_trace,
    mark_single_use,
    note_grad_access,
    note_options,
    note_state,
)
from evergrad.core.holder import TensorHolder, held
from evergrad.core.node import RemovableHandle
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor
from evergrad.core.types import ParamGroup, StateDict
from evergrad.extension import provides
from evergrad.memory.ledger import OPTIMIZER
from evergrad.ops.rows.creation.constants import full, scalar_tensor

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Leaves

# A number of an update: an option, or one that differs from step to step.
Scalar: TypeAlias = "float | Tensor"
Closure = Callable[[], Any]

# Accepted so that PyTorch programs run; there is one implementation of each optimizer here.
IMPLEMENTATION_FLAGS = ("foreach", "maximize", "capturable", "differentiable", "fused")


# Hooks around the steps of all optimizers.
_STEP_PRE: dict[int, Callable[..., object]] = {}
_STEP_POST: dict[int, Callable[..., object]] = {}


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required: _Required = _Required()


def _with_step_hooks(step: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: object, **kwargs: object) -> object:
        if "_step_pre" not in self.__dict__:  # wraps another optimizer, without its __init__
            return step(self, *args, **kwargs)
        given: tuple[object, ...] = (self, *args)
        for hook in (*_STEP_PRE.values(), *self._step_pre.values()):
            changed = hook(self, given, kwargs)
            if changed is None:
                continue
            if not (isinstance(changed, tuple) and len(changed) == 2):
                raise RuntimeError(
                    f"{step} must return None or a tuple of (new_args, new_kwargs), but got "
                    f"{changed}."
                )
            given, kwargs = changed
        note_state(self.state)
        result = step(*given, **kwargs)
        self._hold_while_unchanged()
        self._opt_called = True
        for hook in (*self._step_post.values(), *_STEP_POST.values()):
            hook(self, given, kwargs)
        return result

    return wrapper


class Optimizer:
    """Base class of all optimizers."""

    def __init__(self, params: object, defaults: dict[str, object]) -> None:
        if isinstance(params, (Tensor, TensorHolder)):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                "but got a Tensor; put it in a list"
            )
        if not isinstance(params, Iterable):
            fix = "; pass its .parameters()" if hasattr(params, "parameters") else ""
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got a {type(params).__name__}{fix}"
            )
        for other in ("foreach", "differentiable"):
            if defaults.get("fused") and defaults.get(other):
                raise RuntimeError(
                    f"`fused` and `{other}` cannot be `True` together."
                    if other == "foreach"
                    else "`fused` does not support `differentiable`"
                )
        self.defaults = defaults
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        self.param_groups: list[ParamGroup] = []
        # Whether step() was called: schedules warn if they are stepped first. In each instance from
        # the start, as compiled steps watch which attributes there are.
        self._opt_called = False
        self._make_hook_tables()
        groups = list(params)
        if not groups:
            raise ValueError(
                "optimizer got an empty parameter list. A module without parameters has none to "
                "give, and an iterator such as model.parameters() that was read before is used up: "
                "call it again."
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_step_hooks(cls.step)  # type: ignore[method-assign]

    _opt_called = False

    def _patch_step_function(self) -> None:
        """Subclasses that do not call ``__init__`` ask for their hooks here, as in PyTorch; the
        step has them from the definition of the class on."""
        if "_step_pre" not in self.__dict__:
            self._make_hook_tables()

    # Whether the update has a form for sparse gradients.
    takes_sparse = False

    def _make_hook_tables(self) -> None:
        self._step_pre: dict[int, AnyFunction] = {}
        self._step_post: dict[int, AnyFunction] = {}
        self._state_hooks: dict[str, dict[int, AnyFunction]] = {
            name: {} for name in ("save_pre", "save_post", "load_pre", "load_post")
        }

    # -- parameters -------------------------------------------------------------------------

    def _cuda_graph_capture_health_check(self) -> None:
        """Called by steps that were copied from PyTorch's; nothing is captured here."""

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """A step's decorator in PyTorch; here steps have their hooks from the class on."""
        return func

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add parameters with options of their own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, (Tensor, TensorHolder)):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
        entries = list(params)
        named = [e for e in entries if isinstance(e, tuple)]
        if named:
            group["param_names"] = [name for name, _ in entries]
            entries = [tensor for _, tensor in entries]
        entries = list(map(held, entries))
        for tensor in entries:
            if not isinstance(tensor, Tensor):
                raise TypeError(
                    "optimizer can only optimize Tensors, but one of the params is "
                    f"{type(tensor).__name__}"
                )
            node = tensor.grad_fn
            if node is not None and not self.defaults.get("differentiable"):
                raise ValueError(
                    "can't optimize a non-leaf Tensor: this one is the result of "
                    f"{node.name()}. Pass what it was computed from, or make it a leaf "
                    "with .detach().requires_grad_()."
                )
        group["params"] = entries
        if len(set(map(id, entries))) < len(entries):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this "
                "will cause an error; see github.com/pytorch/pytorch/issues/40967 for more "
                "information",
                stacklevel=3,
            )
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            group.setdefault(name, default)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in known for p in entries):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero."""
        for group in self.param_groups:
            for parameter in group["params"]:
                note_grad_access(parameter)
                if parameter._grad is None:
                    continue
                if set_to_none:
                    parameter._grad = None
                else:
                    if parameter._grad.requires_grad:
                        parameter._grad.detach_()
                    parameter._grad.zero_()

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters once."""
        raise NotImplementedError

    def with_grad(self, group: ParamGroup) -> Iterator[tuple[Tensor, Tensor]]:
        """Each parameter of a group that has a gradient, with the gradient."""
        if not self.takes_sparse and any(isinstance(p._grad, Compound) for p in group["params"]):
            raise RuntimeError(self._sparse_refusal())
        note_options(group)
        for parameter in group["params"]:
            note_grad_access(parameter)
            if parameter._grad is not None:
                yield parameter, parameter._grad

    def _hold_while_unchanged(self) -> None:
        """Tell a running lifting trace that it holds for the present groups and state, not for
        those of a state dict that is loaded later."""
        trace = functionalizing_trace()
        if trace is None:
            return
        parts = self._parts()
        trace.add_guard(
            lambda: len(now := self._parts()) == len(parts) and all(map(is_, now, parts)),
            f"the parameters, the state or the hooks of {type(self).__name__}",
            [*self._collections(), *self._hook_tables()],
        )

    def _parts(self) -> Leaves:
        """The parameters, what is kept for each of them, and the hooks around steps."""
        parts: list[object] = []
        for collection in self._collections()[1:]:
            parts += collection.values() if isinstance(collection, dict) else collection
        for table in self._hook_tables():
            parts += table.values()
        return [self.state, self.param_groups, *parts]

    def _hook_tables(self) -> list[dict[int, Any]]:
        return [_STEP_PRE, _STEP_POST, self._step_pre, self._step_post]

    def _collections(self) -> list[Collection[object]]:
        """Where the parameters and the state are found: lists, and the values of dictionaries."""
        groups = self.param_groups
        kept = [state for state in self.state.values() if isinstance(state, dict)]
        return [vars(self), groups, *(g["params"] for g in groups), self.state, *kept]

    def _sparse_refusal(self) -> str:
        return f"{type(self).__name__} does not support sparse gradients"

    # -- saving and loading -----------------------------------------------------------------

    def state_dict(self) -> StateDict:
        """The state and the options, with parameters replaced by their numbers."""
        for hook in list(self._state_hooks["save_pre"].values()):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {
            (numbers[id(key)] if isinstance(key, Tensor) else key): value
            for key, value in self.state.items()
        }
        result = {"state": state, "param_groups": groups}
        for hook in list(self._state_hooks["save_post"].values()):
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Take over a saved state; the options come from it, the parameters stay."""
        given = dict(state_dict)
        for hook in list(self._state_hooks["load_pre"].values()):
            changed = hook(self, given)
            given = given if changed is None else changed
        groups, saved = self.param_groups, deepcopy(given["param_groups"])
        if len(groups) != len(saved):
            raise ValueError(
                "loaded state dict has a different number of parameter groups: "
                f"{len(saved)}, and the optimizer {len(groups)}"
            )
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                f"optimizer's group: parameters per group are {_sizes(saved)} in the state dict, "
                f"{_sizes(groups)} in the optimizer. It was saved for another model."
            )
        own = [p for group in groups for p in group["params"]]
        by_number = dict(zip((n for group in saved for n in group["params"]), own, strict=True))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in given["state"].items():
            parameter = by_number.get(key)
            state[key if parameter is None else parameter] = _fitted(value, parameter)
        for mine, theirs in zip(groups, saved, strict=True):
            theirs["params"] = mine["params"]
            if "param_names" in mine:
                theirs.setdefault("param_names", mine["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in list(self._state_hooks["load_post"].values()):
            hook(self)

    def __getstate__(self) -> StateDict:
        return {
            "defaults": self.defaults, "state": self.state, "param_groups": self.param_groups,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if "_step_pre" not in self.__dict__:
            self._make_hook_tables()
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)

    def __repr__(self) -> str:
        groups = []
        for i, group in enumerate(self.param_groups):
            lines = [f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params"]
            groups.append(f"Parameter Group {i}\n" + "".join(lines))
        return f"{type(self).__name__} (\n" + "\n".join(groups) + ")"

    # -- hooks ------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step."""
        return RemovableHandle(self._step_pre, hook)

    def register_step_post_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return RemovableHandle(self._step_post, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> RemovableHandle:
        """Call a hook before ``state_dict``."""
        return RemovableHandle(self._state_hooks["save_pre"], hook, first=prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> RemovableHandle:
        """Call a hook with what ``state_dict`` gives."""
        return RemovableHandle(self._state_hooks["save_post"], hook, first=prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> RemovableHandle:
        """Call a hook before ``load_state_dict``."""
        return RemovableHandle(self._state_hooks["load_pre"], hook, first=prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., object], prepend: bool = False
    ) -> RemovableHandle:
        """Call a hook after ``load_state_dict``."""
        return RemovableHandle(self._state_hooks["load_post"], hook, first=prepend)


class ParameterwiseOptimizer(Optimizer):
    """An optimizer that updates each parameter by itself."""

    def step(self, closure: Closure | None = None) -> Any:
        """Update the parameters once."""
        loss = evaluate(closure)
        for group in self.param_groups:
            scaled = bool(group.get("fused")) and hasattr(self, "found_inf")
            if scaled and self._found_inf():
                continue
            for parameter, grad in self.with_grad(group):
                if scaled and self.grad_scale is not None:
                    with using(grad=False):
                        grad.div_(self.grad_scale)
                self._update_one(parameter, grad, group)
        return loss

    # What PyTorch's gradient scalers set on optimizers with ``fused=True``: by what gradients are
    # divided, and whether one of them is not finite, so that nothing is updated.
    grad_scale: Tensor | None = None
    found_inf: Tensor | None

    def _found_inf(self) -> bool:
        if self.found_inf is None:
            return False
        return bool(self.found_inf.item())

    def _update_one(self, p: Tensor, grad: Tensor, group: dict[str, object]) -> None:
        raise NotImplementedError

    def state_of(self, p: Tensor, *names: str) -> StateDict:
        """A parameter's state, made at first of a step counter and zeros under the names."""
        state: StateDict = self.state[p]
        if not state:
            state["step"] = step_counter()
            for name in names:
                state[name] = state_like(p)
        return state


@functools.cache
def fused(formula: Callable[..., object], writes: int, **options: Any) -> FusedUpdate:
    """The update of a formula with these options, made once."""
    return FusedUpdate(formula, writes, **options)


def update_of(
    group: dict[str, object], formula: Callable[..., object], writes: int, **options: object
) -> FusedUpdate:
    """The update of a formula with the options of a group that every optimizer has."""
    differentiable = bool(group["differentiable"])
    return fused(
        formula, writes, differentiable=differentiable, maximize=group["maximize"], **options
    )


@provides("global_optimizer_hooks")
def global_hooks() -> list[dict[int, Any]]:
    """The tables of hooks around the steps of all optimizers."""
    return [_STEP_PRE, _STEP_POST]


def register_optimizer_step_pre_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before each step of every optimizer."""
    return RemovableHandle(_STEP_PRE, hook)


def register_optimizer_step_post_hook(hook: Callable[..., object]) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after each step of every optimizer."""
    return RemovableHandle(_STEP_POST, hook)


def _fitted(value: object, parameter: Tensor | None) -> object:
    """A loaded state entry as a copy in the parameter's element type; counters keep theirs."""
    if isinstance(value, Tensor):
        return _own_copy(value, parameter)
    if isinstance(value, dict):
        return {
            k: (
                v.detach().clone()
                if k == "step" and isinstance(v, Tensor)
                else _fitted(v, parameter)
            )
            for k, v in value.items()
        }
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return type(value)(_fitted(v, parameter) for v in value)  # type: ignore[call-arg]
    return value


def _own_copy(value: Tensor, parameter: Tensor | None) -> Tensor:
    fresh = value.detach().clone()
    if parameter is not None and parameter.is_floating_point():
        fresh = fresh.to(parameter.dtype)
    fresh._storage.tag(OPTIMIZER)
    return fresh


def evaluate(closure: Closure | None) -> Any:
    """The loss a closure computes, with gradients on."""
    if closure is None:
        return None
    with using(grad=True):
        return closure()


def on_both_parts(parameter: Tensor, value: float) -> complex:
    """A number for the real and, if the parameter is complex, the imaginary part."""
    return complex(value, value) if parameter.is_complex() else value


def state_like(parameter: Tensor, value: complex = 0.0) -> Tensor:
    """A state tensor of a parameter's shape and type, counted as optimizer state."""
    with using(trace=None):  # it outlives a trace that is running
        made = full(parameter.shape, value, dtype=parameter.dtype)
    made._storage.tag(OPTIMIZER)
    return made


def step_counter(value: float = 0.0) -> Tensor:
    """A number of the state, such as the steps so far, as a tensor.

    As in PyTorch it is float64 where that is the default type, else float32.
    """
    kind = float64 if get_default_dtype() is float64 else float32
    with using(trace=None):
        made = scalar_tensor(value, dtype=kind)
    made._storage.tag(OPTIMIZER)
    return made


def symbolic_item(tensor: Tensor) -> Any:
    """The number in a tensor of the state (while tracing, one that is known at run time)."""
    return tensor.item() if STATE.get().trace is None else SymbolicNumber(tensor.double())


def count_step(state: StateDict) -> Any:
    """Advance the counter; gives the new number (while tracing, one that is known at run time)."""
    step = state["step"]
    if isinstance(step, Tensor):
        if STATE.get().trace is None and step._value.__class__ is np.ndarray:
            # As below, without the way of an op: every parameter has a counter.
            step._value += 1
            step._storage.version += 1
        else:
            with using(grad=False):
                step += 1
        return symbolic_item(step)
    mark_single_use("the step counter of an optimizer is a Python number")
    state["step"] = step + 1
    return state["step"]


def check_not_negative(**values: Scalar) -> None:
    """Refuse negative options by name."""
    for name, value in values.items():
        if not isinstance(value, Tensor) and not value >= 0.0:
            what = name if name == "weight_decay" else name.replace("_", " ")
            suffix = "" if name == "learning_rate" else " value"
            raise ValueError(f"Invalid {what}{suffix}: {value}")


def check_betas(betas: tuple[Scalar, Scalar]) -> None:
    for i, beta in enumerate(betas):
        if not isinstance(beta, Tensor) and not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def _sizes(groups: Iterable[ParamGroup]) -> list[int]:
    return [len(group["params"]) for group in groups]
