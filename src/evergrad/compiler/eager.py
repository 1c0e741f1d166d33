"""Heavy functions of eager mode as kernels: one node for a call, one program for each direction.

A call of given types and attributes has a :class:`HeavyRule`, which does for it what the rule of a
row does for an op: it evaluates (with a program made of the traced function), and gives the reverse
derivative as a :class:`HeavyPlan`. Nodes, saved values, hooks and the walk back are those of rows.

The derivative computes what it needs of the forward pass again, from the arguments: these kernels
wait for memory, not for arithmetic, and a node keeps nothing but arguments. Where that does not
hold the forward program gives what the derivative reads as further results, which nobody else sees
(:mod:`evergrad.compiler.eager_kept`). Where a gradient is to be differentiated again the walk runs
the traced derivative op by op, and the ordinary rules apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, cast

from evergrad.compiler.eager_graph import NativeGraph
from evergrad.compiler.eager_kept import Halves, halves
from evergrad.core import dtypes
from evergrad.core.composite import Structure
from evergrad.core.heavy import Heavy, forget_kernels, rules_kept
from evergrad.core.history import record
from evergrad.core.op import Op, Rule
from evergrad.core.plan import FRESH, Plan
from evergrad.core.state import State
from evergrad.core.tensor import fresh
from evergrad.core.trace import Graph, Var
from evergrad.memory.ledger import LEDGER, WORTH_COUNTING

# Rules kept over all functions; when the limit is reached all are forgotten and those in use come
# back.
_RULE_LIMIT = 256


def call(
    function: Heavy, state: State, args: tuple[Any, ...], types: tuple[Any, ...],
    attrs: dict[str, Any],
) -> Any:  # fmt: skip
    """Call a heavy function on arrays of these types, as one node."""
    key = (types, tuple(attrs.items())) if attrs else types
    rule = function.rules.get(key)
    if rule is None:
        if function.meets_too_many():
            return function.function(*args, **attrs)
        rule = _new_rule(function, key, Structure(function.traced, types, attrs))
    if not rule.is_native:
        return function.function(*args, **attrs)
    function.calls += 1
    tensors = tuple([a for a in args if a is not None])
    found = rule.native.run([t._value for t in tensors])
    outs = tuple([fresh(a, t) for a, t in zip(found, rule.out_types, strict=True)])
    if state.grad:
        record(state, rule, tensors, outs)
    return outs[0] if rule.visible == 1 else outs[: rule.visible]


def _new_rule(function: Heavy, key: Any, structure: Structure) -> HeavyRule:
    rule = HeavyRule(function, structure)
    if rules_kept() >= _RULE_LIMIT:
        forget_kernels()
    function.rules[key] = rule
    return rule


class _HeavyOp:
    """What nodes, messages and the walk back ask of an op."""

    family = "reduction"  # elements may be left out behind it: see evergrad.core.history
    alias = ""
    random = False
    chooses = False
    settled_vjp = None

    def __init__(self, name: str, outputs: int) -> None:
        self.name = name
        self.outputs = outputs


class HeavyRule(Rule):
    """A heavy function on given types.

    ``is_native`` says whether kernels can do all of it. The first ``visible`` results are the
    function's, others are kept for the derivative.
    """

    __slots__ = ("halves", "is_native", "native", "structure", "visible")

    def __init__(self, function: Heavy, structure: Structure) -> None:
        self.structure = structure
        self.attrs = structure.attrs
        self.types = self.operands = structure.types
        self.casts = None
        self.chooses = False
        self.in_order = True
        self.plans = {}
        graph = structure.traced()
        self.visible = len(graph.outputs)
        self.halves: Halves | None = halves(structure, function.keeps) if function.keeps else None
        if self.halves is not None:
            graph = self.halves.forward
        self.out_types = tuple(out.type for out in graph.outputs)
        self.single = len(self.out_types) == 1
        self.op = cast(Op, _HeavyOp(function.name, len(self.out_types)))
        self.differentiable = any(t.dtype.category >= dtypes.FLOATING for t in self.out_types)
        self.native = NativeGraph(graph)
        self.is_native = self.native.is_native()
        self.run = self.native.run

    def halves_for(self, needs: int) -> Halves | None:
        """The two programs, if they are for a derivative by these arguments."""
        found = self.halves
        return found if found is not None and found.needs == needs else None

    def plan(self, needs: int) -> Plan:
        plan = self.plans.get(needs)
        if plan is None:
            plan = self.plans[needs] = HeavyPlan(self, needs)
        return plan

    def settled_plan(self, plan: Plan) -> Plan:
        found = self.plans.get(~plan.needs)
        if found is None:
            found = self.plans[~plan.needs] = copy(plan)
            found.is_settled = True
        return found


class HeavyPlan(Plan):
    """The reverse derivative of a heavy function: ``run`` is a program, ``graph`` its ops."""

    __slots__ = ("native",)

    def __init__(self, rule: HeavyRule, needs: int) -> None:
        self.rule = rule
        self.needs = needs
        self.single = rule.single
        self.is_settled = False
        self.lays = None
        self._fused = None
        self.unread = frozenset()
        hidden = rule.out_types[rule.visible :]
        arguments, cotangents, graph = rule.structure.derivative(needs, hidden)
        kept = rule.halves_for(needs)
        self.saves = _used(arguments, graph) if kept is None else kept.reads
        values = [
            arguments[i] if i < len(arguments) else _unread(rule, i - len(arguments))
            for i in self.saves
        ]
        self.graph = Graph([*values, *cotangents], (), graph.equations, graph.outputs)
        wanted = [i for i, out in enumerate(graph.outputs) if out is not None]
        outputs = [graph.outputs[i] for i in wanted]
        again = Graph(self.graph.inputs, (), graph.equations, outputs)
        self.native = NativeGraph(again if kept is None else kept.backward)
        self.scratch = sum(out.type.nbytes for out in outputs)
        first = len(self.graph.inputs)
        self.edges = tuple((i, first + place, FRESH) for place, i in enumerate(wanted))

    def run(self, values: list[Any]) -> None:
        values += self.native.run(values)
        if self.scratch >= WORTH_COUNTING:
            LEDGER.transient(self.scratch)


def _used(arguments: Sequence[Var], graph: Graph) -> tuple[int, ...]:
    """The arguments that a graph reads, by number."""
    used = {arg for eqn in graph.equations for arg in eqn.args if isinstance(arg, Var)}
    used |= {out for out in graph.outputs if isinstance(out, Var)}
    return tuple(i for i, var in enumerate(arguments) if var in used)


def _unread(rule: HeavyRule, result: int) -> Var:
    """Stands for a kept result, of which the derivative op by op makes no use."""
    return Var(rule.out_types[result], None)  # type: ignore[arg-type]
