"""Plans on arrays: what a prepared function evaluates where no gradient is recorded.

Equal steps are evaluated once, steps that no result depends on never, and an intermediate is freed
after its last use. Results that are views are taken of the tensors of their bases by their view
ops, so that they are the views that the function itself would give.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from evergrad.core.bind import apply_direct
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.op import Specialization
from evergrad.core.state import State
from evergrad.core.tensor import Tensor, detached, new_result
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.prepared import Recorder
    from evergrad.core.types import Array, Leaves

# Plans with more intermediate memory at once run op by op, in the ledger.
_MOST_SCRATCH = 1 << 18

# What a step gives: one contiguous array, one that may not be contiguous, or several.
_CONTIGUOUS, _STRIDED, _SEVERAL = 0, 1, 2

Step = tuple[Any, tuple[int, ...]]


def _itself(array: Array) -> Array:
    result: Array = array
    return result


class Result:
    """A result: the slot and type of its base, which is an argument if it has no type, and the view
    ops that lead to it."""

    __slots__ = ("slot", "type", "views")

    def __init__(self, slot: int, type: Any, views: tuple[Specialization, ...]) -> None:
        self.slot: int = slot
        self.type: Any = type
        self.views: tuple[Specialization, ...] = views


class ArrayPlan:
    """Evaluators on numbered slots, and the results."""

    __slots__ = ("constants", "plain", "results", "scratch", "steps")

    def __init__(
        self, constants: Leaves, steps: Leaves, results: list[Result], scratch: int
    ) -> None:
        self.constants: Leaves = constants
        # Evaluator, what it gives, the slot of one operand or what takes several of the slots, the
        # number of operands, slots not needed any more.
        self.steps: list[tuple[Any, int, Any, int, tuple[int, ...]]] = steps
        self.results: list[Result] = results
        self.scratch: int = scratch
        # Slot and type of each result, if each is a new array.
        is_plain = all(r.type is not None and not r.views for r in results)
        is_plain = is_plain and len({r.slot for r in results}) == len(results)
        self.plain = [(r.slot, r.type) for r in results] if is_plain else None

    def run(self, state: State, tensors: list[Tensor]) -> list[Tensor]:
        values: Leaves = []
        for tensor in tensors:
            values.append(tensor._value)
        values += self.constants
        token = numpy_errors.set(QUIET)
        try:
            for run, gives, operands, count, dead in self.steps:
                if count == 1:
                    value = run(values[operands])
                elif count:
                    value = run(*operands(values))
                else:
                    value = run()
                if gives == _SEVERAL:
                    values += [v if v.flags.c_contiguous else pool.copy(v) for v in value]
                else:
                    if gives and not value.flags.c_contiguous:
                        value = pool.copy(value)
                    values.append(value)
                if dead:
                    value = None
                    for i in dead:
                        values[i] = None
        finally:
            numpy_errors.reset(token)
        if self.scratch >= LEDGER_MIN_BYTES:
            LEDGER.transient(self.scratch)
        if self.plain is not None:
            inference, results = state.inference, []
            for slot, type in self.plain:
                results.append(new_result(values[slot], type, inference))
            return results
        return self.viewed(state, tensors, values)

    def viewed(self, state: State, tensors: list[Tensor], values: Leaves) -> list[Tensor]:
        """The results, some of which are views or arguments."""
        bases: dict[int, Tensor] = {}
        found = []
        for result in self.results:
            slot = result.slot
            tensor = bases.get(slot)
            if tensor is None:
                tensor = bases[slot] = (
                    tensors[slot] if result.type is None
                    else new_result(values[slot], result.type, state.inference)
                )  # fmt: skip
            for view in result.views:
                tensor = apply_direct(state, view, (tensor,))
            found.append(tensor)
        return found


class PlanSteps:
    """The recorded steps that a plan consists of, and where its results come from."""

    def __init__(self, recorder: Recorder, results: Sequence[Tensor]) -> None:
        self.constants = recorder.constants
        self.is_traced = recorder.state.trace is not None
        self.results = results
        self.arguments = recorder.count
        self.given = recorder.count + len(recorder.constants)
        place = recorder.place
        self.slot_of = {id(t): place(i) for i, t in enumerate(recorder.held)}
        self.tensors = {self.slot_of[id(t)]: t for t in recorder.held}
        self.storages = {id(t._storage) for t in recorder.held[: recorder.count]}
        # Targets, operands, and the slots of what they give.
        self.steps: list[tuple[Any, tuple[int, ...], range]] = []
        firsts = [place(number) for _, _, number in recorder.steps]
        ends = [*firsts, place(len(recorder.held))][1:]
        for (target, slots, _), first, end in zip(recorder.steps, firsts, ends, strict=True):
            self.steps.append((target, tuple(map(place, slots)), range(first, end)))
        self.producers = {slot: step for step in self.steps for slot in step[2]}

    def needed(self, wanted: Iterable[int]) -> list[tuple[object, tuple[int, ...], range]]:
        """The steps that these slots depend on, and those with effects."""
        slots = set(wanted)
        found = []
        for step in reversed(self.steps):
            target, operands, made = step
            is_row = target.__class__ is Specialization
            has_effect = target.op.has_effect if is_row else target is not detached
            if has_effect or not slots.isdisjoint(made):
                found.append(step)
                slots.update(operands)
        found.reverse()
        return found

    def on_tensors(self) -> tuple[list[Step], tuple[int, ...]]:
        """The steps, with slots numbered anew, and the slots of the results."""
        wanted = [self.slot_of[id(r)] for r in self.results]
        new = {i: i for i in range(self.given)}
        found: list[Step] = []
        for target, operands, made in self.needed(wanted):
            found.append((target, tuple([new[s] for s in operands])))
            for slot in made:
                new[slot] = len(new)
        return found, tuple([new[s] for s in wanted])

    def on_arrays(self) -> ArrayPlan | None:
        """The steps on arrays; ``None`` where one of them is no evaluation of arrays, and where
        much memory is held at once."""
        if self.is_traced or not all(map(_is_evaluation, self.steps)):
            return None
        ends = [self.end(tensor) for tensor in self.results]
        found = [end for end in ends if end is not None]
        if len(found) < len(ends):
            return None
        chosen, base, sizes = self.merged(found)
        ordered, scratch = _with_deaths(chosen, self.given, {e.slot for e in found}, base, sizes)
        if scratch > _MOST_SCRATCH:
            return None
        return ArrayPlan(self.constants, ordered, found, scratch)

    def end(self, tensor: Tensor) -> Result | None:
        """Where a result comes from; ``None`` for one that a plan on arrays cannot give."""
        views: list[Specialization] = []
        slot = self.slot_of[id(tensor)]
        while slot >= self.arguments:
            tensor = self.tensors[slot]
            target, operands, _ = self.producers[slot]
            if tensor._view is None:
                storage = tensor._storage
                is_shared = id(storage) in self.storages or (
                    target is detached and sum(r._storage is storage for r in self.results) > 1
                )
                if is_shared or not tensor._value.flags.c_contiguous:
                    return None
                return Result(slot, tensor._type, tuple(reversed(views)))
            if target is detached:
                return None
            views.append(target)
            slot = operands[0]
        return Result(slot, None, tuple(reversed(views)))

    def merged(
        self, ends: Sequence[Result]
    ) -> tuple[list[tuple[object, tuple[int, ...], int]], dict[int, int], dict[int, int]]:
        """The needed steps without repetitions; of each slot that which has its memory, and bytes.
        Results are arrays of their own, even if they are equal."""
        kept = {end.slot for end in ends}
        new = {i: i for i in range(self.given)}
        base, sizes = dict(new), dict.fromkeys(new, 0)
        known: dict[object, int] = {}
        chosen: list[tuple[Any, tuple[int, ...], int]] = []
        for target, slots, made in self.needed(kept):
            operands = tuple([new[s] for s in slots])
            is_pure = target.__class__ is Specialization and not target.op.has_effect
            is_pure = is_pure and kept.isdisjoint(made)
            at = known.get((target, operands)) if is_pure else None
            if at is None:
                at = len(sizes)
                chosen.append((target, operands, at))
                for j, slot in enumerate(made):
                    is_free = _is_view(target) or slot in kept
                    base[at + j] = base[operands[0]] if _is_view(target) else at + j
                    sizes[at + j] = 0 if is_free else self.tensors[slot]._type.nbytes
                if is_pure:
                    known[target, operands] = at
            new.update({slot: at + j for j, slot in enumerate(made)})
        for end in ends:
            end.slot = new[end.slot]
        return chosen, base, sizes


def _is_evaluation(step: tuple[Any, tuple[int, ...], range]) -> bool:
    """Whether a step is a function of arrays that gives its results alone."""
    target = step[0]
    if target is detached or target.__class__ is Specialization:
        return True
    return isinstance(target, Specialization) and target.single


def _is_view(target: object) -> bool:
    return target is detached or (target.__class__ is Specialization and bool(target.op.alias))


def _with_deaths(
    chosen: list[tuple[Any, tuple[int, ...], int]], given: int, kept: set[int],
    base: dict[int, int], sizes: dict[int, int],
) -> tuple[Leaves, int]:  # fmt: skip
    """The steps with the slots that are not needed after them, and the bytes held at once."""
    last: dict[int, int] = {}  # of slots, and of the memory that views share
    ends: dict[int, int] = {}
    for i, (_, operands, at) in enumerate(chosen):
        for slot in (*operands, at):
            last[slot] = ends[base[slot]] = i
    ordered = []
    held = most = 0
    for i, (target, operands, at) in enumerate(chosen):
        held += sizes[at]
        most = max(most, held)
        used = {*operands, at}
        dead = tuple(s for s in used if last[s] == i and s >= given and s not in kept)
        held -= sum(sizes[b] for b in {base[s] for s in used} if ends[b] == i)
        ordered.append((*_evaluator(target), _operands_at(operands), len(operands), dead))
    return ordered, most


def _operands_at(slots: tuple[int, ...]) -> object:
    """The slot of one operand, or what takes several."""
    return slots[0] if len(slots) == 1 else itemgetter(*slots) if slots else None


def _evaluator(target: Any) -> tuple[object, int]:
    """What evaluates a step, and what that gives."""
    if target is detached:
        return _itself, _CONTIGUOUS
    if not target.single:
        return target.run, _SEVERAL
    is_contiguous = target.always_contiguous or _is_view(target)
    return target.evaluator(), _CONTIGUOUS if is_contiguous else _STRIDED
