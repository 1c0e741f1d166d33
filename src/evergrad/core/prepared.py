"""Prepared functions: what a function of several ops binds, cached by the types of its arguments.

A public function checks and normalizes its arguments, then binds rows one after another. For
arguments of the same types, and equal numbers and names, these are the same rows every time. The
second such call is recorded, as a :class:`Plan`: a list of specializations with the slots of their
operands. Further calls look up the plan and run it. Without a graph, and with small results, it
runs on arrays, and only the results become tensors.

A function may be prepared if what it binds depends on types, contiguity and other arguments alone:
not on elements, and on no mode but grad and inference mode. A call that writes in place, and one
that uses tensors made without a row, has no plan.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from evergrad import config
from evergrad.core.array_plan import PlanSteps
from evergrad.core.bind import apply, apply_direct
from evergrad.core.dtypes import dtype
from evergrad.core.eager.fusion import EagerComposite, NativeCall, on_clear
from evergrad.core.op import Attrs, Specialization
from evergrad.core.shapes import Size, TensorType
from evergrad.core.state import STATE, State, using
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.types import Args
from evergrad.core.views import own_memory

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


F = TypeVar("F", bound=Callable[..., Any])

# Calls of a function that are known; at the limit all are forgotten.
_MOST_CALLS = 1 << 10
# Further arguments that belong to the key of a call, and sequences of arguments.
_NAMES = frozenset((int, str, type(None), dtype))
_NUMBERS = frozenset((float, bool))
_FUNCTIONS = frozenset((FunctionType, functools.partial))
_SEQUENCES = frozenset((tuple, list, Size))

# By a description of the arguments: a plan; true for a call that was seen once; false for one that
# has no plan.
_tables: list[dict[object, Any]] = []


def prepared(function: F) -> F:
    """Cache what a function binds (see the module)."""
    plans: dict[object, Any] = {}
    _tables.append(plans)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if (
            state.intercepted
            or not config.EAGER_KERNELS
            or config.EAGER_KERNEL_ELEMENTS is not None
        ):
            return function(*args, **kwargs)
        key: Leaves = []
        tensors: list[Tensor] = []
        for a in args:  # the usual arguments without a call
            if a.__class__ is Tensor:
                value = a._value
                if value.__class__ is not np.ndarray:
                    return function(*args, **kwargs)
                key.append(a._type)
                if not value.flags.c_contiguous:
                    key.append(None)
                tensors.append(a)
            elif a.__class__ in _NAMES:
                key.append(a)
            elif not _describe((a,), key, tensors):
                return function(*args, **kwargs)
        if kwargs:
            key.extend(kwargs)
            if not _describe(kwargs.values(), key, tensors):
                return function(*args, **kwargs)
        count = len(tensors)
        if count > 1 and (
            tensors[0] is tensors[1] if count == 2 else len(set(map(id, tensors))) < count
        ):
            key.append(_repetitions(tensors))
        named = tuple(key)
        plan = plans.get(named)
        if plan.__class__ is Plan:
            return plan.run(state, tensors)
        if plan is False:
            return function(*args, **kwargs)
        if plan is None:
            if len(plans) >= _MOST_CALLS:
                plans.clear()
            plans[named] = True  # seen once
            return function(*args, **kwargs)
        recorder = Recorder(state, tensors)
        with using(recorder=recorder):
            found = function(*args, **kwargs)
        plans[named] = recorder.plan(found) or False
        return found

    # Reports of memory name the function that has allocated it by its code.
    code: object = call.__code__  # type: ignore[attr-defined]
    call.__code__ = code.replace(co_name=function.__name__)  # type: ignore[attr-defined]
    return cast(F, call)


@on_clear
def clear_plans() -> None:
    """Forget all plans; those in use are recorded again."""
    for plans in _tables:
        plans.clear()


def _describe(args: Any, key: list[object], tensors: list[Tensor]) -> bool:
    """Add the types of arguments to the key of a call; false if it cannot have a plan."""
    for a in args:
        kind = a.__class__
        if kind in _NAMES:
            key.append(a)
        elif kind in _NUMBERS:  # equal ones of two types are different arguments
            key.append(kind)
            key.append(a or str(a))  # a zero has a sign
        elif isinstance(a, Tensor):
            type, value = a._type, a._value
            if type.__class__ is not TensorType or value.__class__ is not np.ndarray:
                return False
            key.append(type)
            if not value.flags.c_contiguous:
                key.append(None)
            tensors.append(a)
        elif kind in _SEQUENCES:
            key.append(kind)
            key.append(len(a))
            if not _describe(a, key, tensors):
                return False
        else:
            return False
    return True


def _repetitions(tensors: list[Tensor]) -> tuple[int, ...]:
    """Of each tensor where it occurs first."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(t), i) for i, t in enumerate(tensors)])


class Recorder:
    """Notes what a function binds while it runs eagerly."""

    __slots__ = ("constants", "count", "failed", "held", "slots", "state", "steps", "versions")

    def __init__(self, state: State, tensors: Sequence[Tensor]) -> None:
        self.state: State = state
        self.count: int = len(tensors)
        # Slot numbers by identity, of constants their complements. All tensors live until the end.
        self.slots: dict[int, int] = {}
        self.held: list[Tensor] = []
        self.versions: list[int] = []
        self.constants: Leaves = []
        # What is called, the slots of its operands, and its first result among those held.
        self.steps: list[tuple[Any, list[int], int]] = []
        self.failed: bool = False
        for tensor in tensors:
            self.hold(tensor)

    def hold(self, tensor: Tensor) -> None:
        self.slots[id(tensor)] = len(self.held)
        self.held.append(tensor)
        self.versions.append(tensor._storage.version)

    def constant(self, value: object) -> int:
        self.constants.append(value)
        return -len(self.constants)

    def note(self, target: object, args: Sequence[Tensor | float], found: object) -> None:
        """Note one op with its operands and results: a specialization, or a function of tensors."""
        state = STATE.get()
        if state.grad is not self.state.grad or state.inference is not self.state.inference:
            self.failed = True
        self.steps.append((target, [self.slot(a) for a in args], len(self.held)))
        for out in found if isinstance(found, tuple) else (found,):
            self.hold(out)

    def note_composite(
        self, function: EagerComposite, call: NativeCall, args: Args, types: Args, attrs: Attrs
    ) -> Tensor:  # fmt: skip
        """Call a composite that is one node, and note it: as its specialization, if it has one."""
        with using(recorder=None):
            found = call(function, STATE.get(), args, types, attrs)
        specialization = function.specializations.get(
            (types, tuple(attrs.items())) if attrs else types
        )
        is_usual = specialization is not None and specialization.is_usual
        target = specialization if is_usual else functools.partial(function, **attrs)
        # Specializations take no arguments for what is missing.
        given = [a for a in args if a is not None] if is_usual else args
        self.note(target, given, found)
        result: Tensor = found
        return result

    def slot(self, operand: Any) -> int:
        if not isinstance(operand, Tensor):
            return self.constant(operand)
        slot = self.slots.get(id(operand))
        if slot is None:  # made without a row
            self.failed = True
            return 0
        return slot

    def place(self, slot: int) -> int:
        """Where a plan has a slot: the constants lie behind the arguments."""
        given = self.count
        return (
            given - 1 - slot if slot < 0 else slot if slot < given else slot + len(self.constants)
        )

    def plan(self, found: object) -> Plan | None:
        """The recorded plan, or none."""
        results = found if isinstance(found, (tuple, list)) else (found,)
        written = [t._storage.version for t in self.held] != self.versions
        if self.failed or written or not all(id(r) in self.slots for r in results):
            return None
        return Plan(self, found, results)


def not_repeated() -> None:
    """Have the running call of a prepared function no plan: it does something else beside."""
    recorder = STATE.get().recorder
    if recorder is not None:
        recorder.failed = True


class Plan:
    """What a call binds: ``steps`` on ``slots``, which hold arguments, constants and results."""

    __slots__ = ("arrays", "constants", "kind", "owned", "results", "steps")

    def __init__(self, recorder: Recorder, found: object, results: Sequence[Tensor]) -> None:
        self.kind = None if isinstance(found, Tensor) else found.__class__
        self.constants = recorder.constants
        chosen = PlanSteps(recorder, results)
        self.steps, self.results = chosen.on_tensors()
        views = _views(recorder)
        # Views of memory that the function made for its result alone.
        self.owned = tuple([r._view is None and id(r) in views for r in results])
        self.arrays = chosen.on_arrays()

    def run(self, state: State, tensors: list[Tensor]) -> Any:
        if self.arrays is not None and not state.intercepted:
            if state.grad:
                for tensor in tensors:
                    is_plain = tensor._node is None and tensor._view is None
                    if not is_plain and current_node(tensor) is not None:
                        break
                else:
                    found = self.arrays.run(state, tensors)
                    return found[0] if self.kind is None else self.made(found)
            else:
                found = self.arrays.run(state, tensors)
                return found[0] if self.kind is None else self.made(found)
        values: Leaves = tensors + self.constants
        for target, slots in self.steps:
            args = (values[slots[0]],) if len(slots) == 1 else tuple([values[i] for i in slots])
            kind = target.__class__
            if kind is Specialization:
                found = (apply if state.intercepted else apply_direct)(state, target, args)
            elif kind in _FUNCTIONS:
                found = target(*args)
            else:
                found = target.call(state, args)
            if found.__class__ is tuple:
                values += found
            else:
                values.append(found)
        return self.made([
            own_memory(values[i]) if is_owned else values[i]
            for i, is_owned in zip(self.results, self.owned, strict=True)
        ])  # fmt: skip

    def made(self, results: list[Tensor]) -> object:
        if self.kind is None:
            return results[0]
        if self.kind is tuple or self.kind is list:
            return self.kind(results)
        return self.kind(*results)


def _views(recorder: Recorder) -> set[int]:
    """The results of view ops, by identity."""
    return {
        id(recorder.held[first])
        for target, _, first in recorder.steps
        if target.__class__ is Specialization and target.op.alias
    }
