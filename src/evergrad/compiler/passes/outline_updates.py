"""Updates of outside memory as one equation while passes run.

What an optimizer computes from gradients depends on no batch size and is most of the equations of a
training step (160 of 207 for an MLP of three layers under Adam), all of them elementwise: passes
find next to nothing there. :func:`outline_updates` moves the equations that only final values of
storages depend on into the body of one equation. :func:`inline_updates` puts them back when all
other passes have run, optimized by themselves, once for all shapes of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.fusibility import is_elementwise
from evergrad.core.op import NONDIFFERENTIABLE, Op, Specialization
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.trace import Equation, Graph, Trace, Var, without_memory
from evergrad.ops.rows.elementwise.basic import CLONE

if TYPE_CHECKING:
    from evergrad.core.shapes import TensorType


# Fewer equations are left where they are.
_FEWEST = 8
# The most updates kept; when there are more all are dropped, and those in use come back.
_MOST_KEPT = 64

_kept: dict[tuple[object, ...], Specialization] = {}


class Tail:
    """The equations of updates as a graph: ``graph`` as they were traced. ``reads`` are, for each
    result, the inputs that it depends on. ``optimized`` is the graph after all passes, for each
    requested target."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.reads: tuple[tuple[int, ...], ...] = _reads(graph)
        self.optimized: dict[object, Graph] = {}

    def __repr__(self) -> str:
        return f"Tail({len(self.graph.equations)} equations)"


def _types(*types: object, tail: Tail) -> tuple[TensorType, ...]:
    return tuple([out.type for out in tail.graph.outputs])


def _evaluate(*arrays: object, tail: Tail) -> tuple[object, ...]:
    env: dict[object, Any] = dict(zip(tail.graph.inputs, arrays, strict=True))
    for eqn in tail.graph.equations:
        args = [env[a] if isinstance(a, Var) else a for a in eqn.args]
        env[eqn.outs[0]] = eqn.specialization.run(*args)
    return tuple([env[out] for out in tail.graph.outputs])


UPDATES = Op(
    "updates", family="composite", in_table=False, type=_types, eval=_evaluate,
    vjp=NONDIFFERENTIABLE, jvp=None, batch=None, outputs=2, upcast=False,
    emit=lowered("passes.outline_updates"), autocast=AutocastPolicy.KEEP,
)  # fmt: skip


def outline_updates(graph: Graph, results: int, written: int) -> Graph:
    """The graph with the elementwise equations that nothing but final values of storages depends on
    as one; these are the ``written`` outputs after the ``results``."""
    values = DefUse(graph)
    tail = _equations_of(values, results, written)
    if len(tail) < _FEWEST:
        return graph
    known = {id(eqn) for eqn in tail}
    made = {eqn.outs[0] for eqn in tail}
    given = list(dict.fromkeys([
        a for eqn in tail for a in eqn.args if isinstance(a, Var) and a not in made
    ]))  # fmt: skip
    outs = [o for o in dict.fromkeys(graph.outputs) if isinstance(o, Var) and o in made]
    specialization = _specialized(tail, given, outs)
    updates = Equation(specialization, tuple(given), tuple(outs), tail[-1].location, True)
    others = [eqn for eqn in graph.equations if id(eqn) not in known]
    return Graph(graph.inputs, graph.captures, [*others, updates], graph.outputs, graph.writes)


def _equations_of(values: DefUse, results: int, written: int) -> list[Equation]:
    """The equations of updates, in their order."""
    graph = values.graph
    ends = {out for out in graph.outputs[results : results + written] if isinstance(out, Var)}
    ends -= {out for out in graph.outputs[:results] if isinstance(out, Var)}
    ends -= {out for out in graph.outputs[results + written :] if isinstance(out, Var)}
    ends -= {var for _, var in graph.writes}
    found: set[int] = set()
    for eqn in reversed(graph.equations):
        out, users = eqn.outs[0], values.uses.get(eqn.outs[0], ())
        is_used = out in ends or (users and out not in values.outputs)
        if not is_used or eqn.op is CLONE or not is_elementwise(values, eqn):
            continue
        if all(id(user) in found for user in users):
            found.add(id(eqn))
    return [eqn for eqn in graph.equations if id(eqn) in found]


def _specialized(
    tail: Sequence[Equation], given: Sequence[Var], outs: Sequence[Var]
) -> Specialization:
    """The row of updates for these equations; the same one for equal equations on values of equal
    types and strides."""
    slot: dict[object, int] = {var: number for number, var in enumerate(given)}
    key: list[object] = []
    location = None
    for eqn in tail:
        if eqn.location is not location:
            location = eqn.location
            key.append(location and (id(location[0]), location[1]))
        key.append(id(eqn.specialization))
        key += [slot[a] if a.__class__ is Var else (type(a), repr(a)) for a in eqn.args]
        slot[eqn.outs[0]] = len(slot)
    key += [(var.type, var.layout.strides) for var in given]
    key += [slot[out] for out in outs]
    known = _kept.get(tuple(key))
    if known is None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        held = Tail(_apart(tail, given, outs))
        types = tuple([var.type for var in given])
        out_types = tuple([out.type for out in outs])
        known = Specialization(UPDATES, {"tail": held}, types, types, out_types, None)
        _kept[tuple(key)] = known
    return known


def _apart(tail: Sequence[Equation], given: Sequence[Var], outs: Sequence[Var]) -> Graph:
    """The equations as a graph of its own, whose layouts have no memory: it outlives the trace and
    the tensors that are read."""
    trace = Trace(None)
    env: dict[object, Any] = {}
    for var in given:
        strides = [stride // var.type.dtype.itemsize for stride in var.layout.strides]
        env[var] = Var(var.type, trace, without_memory(var.type, tuple(strides)))
    equations = []
    for eqn in tail:
        made = Var(eqn.outs[0].type, trace)
        equations.append(_with_arguments(eqn, env, (made,)))
        env[eqn.outs[0]] = made
    return Graph([env[v] for v in given], (), equations, [env[out] for out in outs])


def inline_updates(graph: Graph, optimize: Callable[[Graph], Graph], target: object) -> Graph:
    """The graph with the outlined equation replaced by its body, which all passes of a target have
    optimized (``optimize``)."""
    where = next((eqn for eqn in graph.equations if eqn.op is UPDATES), None)
    if where is None:
        return graph
    tail: Tail = where.attrs["tail"]
    optimized = tail.optimized.get(target)
    if optimized is None:
        optimized = tail.optimized[target] = optimize(tail.graph)
    # Values of its own are the same in all programs; equations that read others are copied.
    env: dict[object, Any] = dict(zip(optimized.inputs, where.args, strict=True))
    outside = set(optimized.inputs)
    equations = [
        eqn if outside.isdisjoint(eqn.args) else _with_arguments(eqn, env, eqn.outs)
        for eqn in optimized.equations
    ]
    renamed = {
        new: env.get(old, old) for old, new in zip(optimized.outputs, where.outs, strict=True)
    }
    others = [eqn for eqn in graph.equations if eqn is not where]
    equations = _interleaved(others, equations)
    outputs = [renamed.get(o, o) if isinstance(o, Var) else o for o in graph.outputs]
    captures = [*graph.captures, *optimized.captures]
    return Graph(graph.inputs, captures, equations, outputs, graph.writes)


def _interleaved(others: Sequence[Equation], updates: Sequence[Equation]) -> list[Equation]:
    """Each update as soon as all that it reads is known: memory of gradients is free early. Behind
    all others where processes communicate: gathered layers are released in between."""
    if any(eqn.op.communicates for eqn in others):
        return [*others, *updates]
    known: dict[object, int] = {}
    for number, eqn in enumerate(others):
        known.update((out, number) for out in eqn.outs)
    after: dict[int, list[Equation]] = {}
    for eqn in updates:
        place = max([known.get(a, -1) for a in eqn.args if isinstance(a, Var)], default=-1)
        known.update((out, place) for out in eqn.outs)
        after.setdefault(place, []).append(eqn)
    merged = list(after.get(-1, ()))
    for number, eqn in enumerate(others):
        merged += [eqn, *after.get(number, ())]
    return merged


def _with_arguments(eqn: Equation, env: dict[object, Any], outs: tuple[Var, ...]) -> Equation:
    args = tuple([env.get(a, a) if a.__class__ is Var else a for a in eqn.args])
    return Equation(eqn.specialization, args, outs, eqn.location)


def _reads(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """The numbers of the inputs that each output depends on."""
    depends = {var: frozenset([number]) for number, var in enumerate(graph.inputs)}
    for eqn in graph.equations:
        found = [depends[a] for a in eqn.args if isinstance(a, Var)]
        depends[eqn.outs[0]] = frozenset().union(*found)
    return tuple([tuple(sorted(depends[out])) for out in graph.outputs])
