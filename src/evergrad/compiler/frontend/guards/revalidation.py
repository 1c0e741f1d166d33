"""Revalidation: whether the trace of a later call is still the kept program.

Guards say when a program may run. Should one be missing, the program would be stale for ever; so
some calls (the 2nd, 3rd, 5th, 9th, ...) are traced again as the calls they are, and their graph is
compared with that of the kept program. A call is traced only once that costs at most 2 % of the
time that the program has run for, which a timed call tells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.compiler.frontend.captured import Captured
from evergrad.compiler.frontend.diagnose import describe_equation
from evergrad.compiler.frontend.effects.outputs import COMPUTED
from evergrad.compiler.frontend.state.places import same
from evergrad.core.composite import Body
from evergrad.core.rng.recorded_state import SEED
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.ops.surface.convert import Constant

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# Tracing takes at most this part of the time that a program has run for.
_SHARE = 0.02
_NEVER = 1 << 62
# An upper estimate of what tracing takes, by the number of operations.
_BASE_SECONDS, _SECONDS_PER_EQUATION = 0.004, 0.0002


class Schedule:
    """When the calls of a variant are traced again."""

    __slots__ = ("calls", "due", "is_ready", "seconds", "tracing_seconds")

    def __init__(self) -> None:
        self.calls: int = 1
        self.due = 2 if config.REVALIDATE else _NEVER
        self.is_ready: bool = False
        self.tracing_seconds: float = 0.0
        # The least that a timed call took; infinite before the first.
        self.seconds: float = math.inf

    def note_duration(self, seconds: float) -> None:
        """A call that is due took so long (processor time): the next one is traced, or a later one.
        The first one may find caches cold, so that two are timed before anything is decided."""
        is_first = self.seconds == math.inf
        self.seconds = min(self.seconds, seconds)
        if is_first:
            self.due = self.calls + 1
            return
        affordable = self.tracing_seconds / (_SHARE * max(self.seconds, 1e-7))
        if affordable <= self.calls:
            self.is_ready = True
        else:
            self.due = max(2 * self.calls, int(affordable) + 1)

    def note_traced(self, seconds: float, equations: int) -> None:
        """Tracing took so long. The first time it includes what is done once in a process: an
        estimate from the number of operations bounds it."""
        self.tracing_seconds = min(seconds, _BASE_SECONDS + _SECONDS_PER_EQUATION * equations)
        self.is_ready = False
        if self.due < _NEVER:
            self.due = 2 * self.calls


def difference(kept: Captured, traced: Captured) -> str | None:
    """What two captured calls differ in, for a message; ``None`` if they are the same program."""
    if not _same_captures(kept.outside, traced.outside):
        return "the captured tensors are others"
    for name, before, after in (
        ("the tensors that are written", kept.written, traced.written),
        ("the gradients that are set", _owners(kept), _owners(traced)),
    ):
        if list(map(id, before)) != list(map(id, after)):
            return f"{name} are others"
    if kept.overwritten != traced.overwritten or _places(kept) != _places(traced):
        return "the places that are written are others"
    if kept.flags != traced.flags:
        return "the arguments for which requires_grad is set are others"
    if _calls(kept) != _calls(traced):
        return "the impure functions that are called are others"
    found = _graphs_differ(kept.whole_graph, traced.whole_graph)
    if found is None and not _same_results(kept, traced):
        found = "the result has another structure or other constants"
    return found


def _same_captures(kept: list[Tensor], traced: list[Tensor]) -> bool:
    """Whether captured tensors are on the same storages (a call may make other handles on them), or
    are constants with equal elements: an index or a table of numbers that each call makes anew."""
    return len(kept) == len(traced) and all(
        a._storage is b._storage or _same_elements(a, b) for a, b in zip(kept, traced, strict=True)
    )


def _same_elements(a: Tensor, b: Tensor) -> bool:
    if a.requires_grad or b.requires_grad or a._type is not b._type:
        return False
    return isinstance(a._value, np.ndarray) and _same(a._value, b._value)


def _owners(captured: Captured) -> list[object]:
    return [captured.arguments if isinstance(owner, int) else owner for owner, _ in captured.grads]


def _places(captured: Captured) -> Leaves:
    effects = captured.effects
    return [] if effects is None else [slot.identity for slot in effects.written]


def _calls(captured: Captured) -> list[object]:
    effects = captured.effects
    if effects is None:
        return []
    return [*(call.name for call in effects.calls), *(call.name for call in effects.outputs)]


def _same_results(kept: Captured, traced: Captured) -> bool:
    if kept.results.spec != traced.results.spec:
        return False
    before, after = kept.results.objects, traced.results.objects
    if before is not after and (before is None or not before.same(after)):
        return False
    pairs = zip(kept.results.leaves, traced.results.leaves, strict=True)
    return all(
        type(a) is type(b) if isinstance(a, COMPUTED) else same(b, a) or a is b for a, b in pairs
    )


def _graphs_differ(kept: Graph, traced: Graph) -> str | None:
    before, after = _rows(kept), _rows(traced)
    for eqn, known in zip(traced.equations, before, strict=False):
        if not _same_row(next(after), known):
            return f"another operation or constant: {describe_equation(eqn)}"
    if len(kept.equations) != len(traced.equations):
        longer = max(kept, traced, key=lambda graph: len(graph.equations))
        number = min(len(kept.equations), len(traced.equations))
        return f"an operation more or less: {describe_equation(longer.equations[number])}"
    return None if _outputs(kept) == _outputs(traced) else "the outputs are others"


def _numbers(graph: Graph) -> dict[Var, int]:
    found = list(graph.inputs)
    for eqn in graph.equations:
        found += eqn.outs
    return {var: number for number, var in enumerate(found)}


def _rows(graph: Graph) -> Iterator[tuple[object, list[object]]]:
    """The equations in a form that compares: values by their number."""
    numbers = _numbers(graph)
    made: Leaves = []  # the generators that the call has made
    for eqn in graph.equations:
        args = [("value", numbers[a]) if a.__class__ is Var else a for a in eqn.args]
        if eqn.op is SEED and eqn.attrs["is_new"]:
            made.append(eqn.attrs["generator"])
        if made and eqn.op.random:
            generator = eqn.attrs.get("generator")
            args += [("generator", n) for n, known in enumerate(made) if known is generator]
        yield eqn.specialization, args


def _same_row(a: tuple[Any, Leaves], b: tuple[Any, Leaves]) -> bool:
    (ours, args), (theirs, others) = a, b
    if ours is not theirs and not _same_specialization(ours, theirs):
        return False
    is_same = ours.attrs.get("generator") is theirs.attrs.get("generator")
    if not (is_same or (args and others and args[-1] == others[-1] and _is_made(args[-1]))):
        return False
    return len(args) == len(others) and all(map(_same, args, others))


def _is_made(arg: object) -> bool:
    return type(arg) is tuple and arg[:1] == ("generator",)


def _same_specialization(a: Any, b: Any) -> bool:
    if a.op is not b.op:  # each call makes the op of a custom function anew
        return bool(a.op.name == b.op.name and a.op.name.startswith("custom:"))
    return all(key == "generator" or _same(held, b.attrs.get(key)) for key, held in a.attrs.items())


def _same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, (tuple, list)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(map(_same, a.values(), b.values()))
    if isinstance(a, Body) and isinstance(b, Body):
        return a is b or _same(a.key, b.key)
    if isinstance(a, Constant) and isinstance(b, Constant):
        return _same(a.array, b.array)
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a is b
    return same(a, b) or bool(type(a) is type(b) and a == b)


def _outputs(graph: Graph) -> list[object]:
    numbers = _numbers(graph)
    return [numbers[out] if isinstance(out, Var) else None for out in graph.outputs]
