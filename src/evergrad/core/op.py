"""What an op is: one row of the table, and what follows from it for given types.

:class:`Op` is the row. :class:`Rule` is its answer for one combination of input types and
attributes (result types, casts, how to evaluate), worked out once and cached in the row.
:class:`Plan` is the reverse derivative of a rule: the row's formula traced on types, from which
both the values worth saving and the program that backward runs are read off.

How rows are written is the business of :mod:`evergrad.core.families`.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.trace import Equation, Graph, Var
from evergrad.errors import GradientError
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER, WORTH_COUNTING

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor

Array = np.ndarray[Any, Any]
ArgType = TensorType | type
Attrs = dict[str, Any]

TABLE: dict[str, Op] = {}

# Rules kept over all ops. Shapes that never repeat would otherwise fill memory; when the limit is
# reached all are forgotten and those in use come back.
_RULE_LIMIT = 1 << 14
_rules_kept = 0

# Said of a row whose derivative is zero or meaningless wherever it exists.
NONDIFFERENTIABLE: Final = "NONDIFFERENTIABLE"


class Op:
    """One row of the op table.

    ``type(*types, **attrs)`` gives the result type(s) or raises in the user's words;
    ``eval(*arrays, **attrs)`` computes with NumPy; ``vjp(g, out, *args, **attrs)`` gives one
    cotangent per argument, written in ops; ``jvp(tangents, out, *args, **attrs)`` the tangent of
    the result; ``batch`` the rule for :func:`~evergrad.func.vmap`. ``promote`` names the element
    type in which tensors of different types meet, one for all or one for each argument (``None``:
    the row takes them as they are).
    """

    __slots__ = (
        "alias", "batch", "chooses", "doc", "eval", "family", "formula", "jvp", "lays", "name",
        "outputs", "promote", "random", "rules", "settled_vjp", "takes_out", "type", "upcast",
        "vjp",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        family: str,
        type: Callable[..., Any],
        eval: Callable[..., Any],
        vjp: Callable[..., Any] | str,
        jvp: Callable[..., Any] | None,
        batch: Callable[..., Any] | None,
        promote: Callable[[tuple[ArgType, ...]], dtype | tuple[dtype, ...]] | None = None,
        outputs: int = 1,
        alias: str = "",
        random: bool = False,
        takes_out: bool = False,
        upcast: bool = True,
        formula: str = "",
        doc: str = "",
    ) -> None:
        if name in TABLE:
            raise ValueError(f"the table already has a row named {name!r}")
        self.name = name
        self.family = family
        self.type = type
        self.eval = eval
        self.vjp = vjp
        self.jvp = jvp
        self.batch = batch
        self.promote = promote
        self.outputs = outputs
        # "view": the result shares memory with the first argument; "reshape": where its strides
        # allow; "expand": so that one element of memory may stand for several of the result.
        self.alias = alias
        self.random = random
        self.takes_out = takes_out
        # Whether 16-bit floats are evaluated in float32 (rows that only move data need not be).
        self.upcast = upcast
        self.formula = formula
        self.doc = doc
        # For a row that lays its argument into zeros: where, as a NumPy index, from the attributes.
        self.lays: Callable[..., Any] | None = None
        # For a row that leaves elements of its arguments out: what was computed only for those has
        # a gradient of zero, even where its slope is infinite or undefined. Rows whose slope may be
        # so have a vjp in which such a zero stays zero.
        self.chooses = False
        self.settled_vjp: Callable[..., Any] | None = None
        self.rules: dict[Any, Rule] = {}
        TABLE[name] = self

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def differentiable(self) -> bool:
        return self.vjp is not NONDIFFERENTIABLE

    def apply(self, *args: Any, **attrs: Any) -> Any:
        """Apply the op, as an equation that stands in a graph."""
        from evergrad.core.bind import bind

        return bind(self, *args, **attrs)

    def resolve(self, key: Any, types: tuple[ArgType, ...], attrs: Attrs) -> Rule:
        """The rule for these types and attributes; errors about them are raised here."""
        global _rules_kept
        rule = self._rule_for(types, attrs)
        _rules_kept += 1
        if _rules_kept > _RULE_LIMIT:
            forget_rules()
        self.rules[key] = rule
        return rule

    def _rule_for(self, types: tuple[ArgType, ...], attrs: Attrs) -> Rule:
        casts: tuple[dtype | None, ...] | None = None
        if self.promote is not None:
            found = self.promote(types)
            common = found if isinstance(found, tuple) else (found,) * len(types)
            wanted = tuple(
                c if isinstance(t, TensorType) and t.dtype is not c else None
                for t, c in zip(types, common, strict=True)
            )
            if any(wanted):
                casts = wanted
            types = tuple(
                tensor_type(t.shape, c) if isinstance(t, TensorType) else t
                for t, c in zip(types, common, strict=True)
            )
            operands = tuple(
                t if isinstance(t, TensorType) else tensor_type((), c)
                for t, c in zip(types, common, strict=True)
            )
        else:
            operands = types  # type: ignore[assignment]
        result = self.type(*operands, **attrs)
        out_types = result if isinstance(result, tuple) else (result,)
        return Rule(self, attrs, types, operands, out_types, casts)


def forget_rules() -> None:
    """Empty the caches of all ops; what is still in use is worked out again.

    A rule and its plans know each other: they are taken apart, so that no cycle is left.
    """
    global _rules_kept
    _rules_kept = 0
    for op in TABLE.values():
        forgotten, op.rules = op.rules, {}
        for rule in forgotten.values():
            rule.plans = {}


class Rule:
    """An op on given types: what comes out, and how to get there."""

    __slots__ = (
        "attrs",
        "casts",
        "chooses",
        "differentiable",
        "op",
        "operands",
        "out_types",
        "plans",
        "run",
        "single",
        "types",
    )  # fmt: skip

    def __init__(
        self,
        op: Op,
        attrs: Attrs,
        types: tuple[ArgType, ...],
        operands: tuple[TensorType, ...],
        out_types: tuple[TensorType, ...],
        casts: tuple[dtype | None, ...] | None,
    ) -> None:
        self.op = op
        self.attrs = attrs
        self.types = types
        self.operands = operands
        self.out_types = out_types
        self.casts = casts
        self.single = op.outputs == 1
        self.chooses = op.chooses
        self.differentiable = op.differentiable and any(
            t.dtype.category >= dtypes.FLOATING for t in out_types
        )
        self.plans: dict[int, Plan] = {}
        self.run = _evaluator(op, attrs, types, operands, out_types)

    def plan(self, needs: int) -> Plan:
        """The reverse derivative with respect to the arguments in the bit set ``needs``."""
        plan = self.plans.get(needs)
        if plan is None:
            plan = self.plans[needs] = Plan(self, needs)
        return plan

    def settled_plan(self, plan: Plan) -> Plan:
        """The same derivative for a value that may not have been chosen: cotangents of zero stay
        zero."""
        found = self.plans.get(~plan.needs)
        if found is None:
            if self.op.settled_vjp is None or not plan.saves:
                found = copy(plan)
                found.is_settled = True
            else:
                found = Plan(self, plan.needs, settled=True)
            self.plans[~plan.needs] = found
        return found


def _evaluator(
    op: Op,
    attrs: Attrs,
    types: tuple[ArgType, ...],
    operands: tuple[TensorType, ...],
    out_types: tuple[TensorType, ...],
) -> Callable[..., Any]:
    """``op.eval`` made fit for these types: a plain ufunc where nothing needs to be added."""
    run = _plain_evaluator(op, attrs, types, operands, out_types)
    return _into_pool(run) if config.POISON and not op.alias else run


def _plain_evaluator(
    op: Op,
    attrs: Attrs,
    types: tuple[ArgType, ...],
    operands: tuple[TensorType, ...],
    out_types: tuple[TensorType, ...],
) -> Callable[..., Any]:
    function = op.eval
    run: Callable[..., Any] = function
    if attrs:
        run = _with_attrs(function, attrs)
    low = op.upcast and any(
        isinstance(t, TensorType) and t.dtype.compute is not t.dtype.np
        for t in (*operands, *out_types)
    )
    if any(
        isinstance(t, type) and isinstance(o, TensorType) and o.dtype.category <= dtypes.INTEGRAL
        for t, o in zip(types, operands, strict=True)
    ):
        # A Python int takes the tensor's type by wrapping around, as in PyTorch.
        run = _with_wrapped_scalars(run, types, operands)
    if low:
        return _through_float32(run, out_types)
    if op.outputs == 1 and op.takes_out:
        out = out_types[0]
        if not out.shape or out.nbytes >= config.POOL_MIN_BYTES:
            return _into_fresh(run, out.shape, out.dtype.np)
    elif op.outputs == 1 and not op.alias:
        return _as_array(run, out_types[0].dtype.np)
    return run


def _with_attrs(function: Callable[..., Any], attrs: Attrs) -> Callable[..., Any]:
    def run(*arrays: Any, **extra: Any) -> Any:
        return function(*arrays, **attrs, **extra)

    return run


def _with_wrapped_scalars(
    function: Callable[..., Any], types: tuple[ArgType, ...], operands: tuple[TensorType, ...]
) -> Callable[..., Any]:
    targets = [
        None if isinstance(t, TensorType) else o.dtype.np
        for t, o in zip(types, operands, strict=True)
    ]

    def run(*arrays: Any, **extra: Any) -> Any:
        values = [
            a if target is None else np.asarray(a).astype(target)
            for a, target in zip(arrays, targets, strict=True)
        ]
        return function(*values, **extra)

    return run


def _through_float32(
    function: Callable[..., Any], out_types: tuple[TensorType, ...]
) -> Callable[..., Any]:
    low = (dtypes.float16.np, dtypes.bfloat16.np)
    targets = [t.dtype.np for t in out_types]

    def run(*arrays: Any) -> Any:
        values = [a.astype(np.float32) if getattr(a, "dtype", None) in low else a for a in arrays]
        result = function(*values)
        if isinstance(result, tuple):
            return tuple(
                np.asarray(r).astype(t, copy=False) for r, t in zip(result, targets, strict=True)
            )
        return np.asarray(result).astype(targets[0], copy=False)

    return run


def _into_fresh(
    function: Callable[..., Any], shape: tuple[int, ...], numpy_type: np.dtype[Any]
) -> Callable[..., Any]:
    allocate = pool.allocator(shape, numpy_type)

    def run(*arrays: Any) -> Any:
        return function(*arrays, out=allocate())

    return run


def _into_pool(function: Callable[..., Any]) -> Callable[..., Any]:
    """Move results into memory that is poisoned when it is released."""

    def moved(array: Array) -> Array:
        return pool.copy(array) if array.flags.c_contiguous else array

    def run(*arrays: Any, **extra: Any) -> Any:
        result = function(*arrays, **extra)
        return tuple(map(moved, result)) if isinstance(result, tuple) else moved(result)

    return run


def _as_array(function: Callable[..., Any], numpy_type: np.dtype[Any]) -> Callable[..., Any]:
    def run(*arrays: Any) -> Any:
        return np.asarray(function(*arrays), numpy_type)

    return run


# Where the memory of a plan's result comes from.
FRESH, BORROWED = -1, -2


class Plan:
    """The reverse derivative of a rule for some of its arguments.

    ``saves`` lists which values the formula uses: ``i`` for argument ``i``, ``n + j`` for result
    ``j`` of an op with ``n`` arguments. ``graph`` takes those values and then the cotangents.
    ``edges`` lists for each argument with a cotangent: its number, where :meth:`run` leaves the
    cotangent, and whether its memory is fresh, borrowed, or that of incoming cotangent ``k``, whose
    owner it then inherits. ``lays`` is set where the only cotangent is the incoming one laid into
    zeros: the walk then adds it to that part of what has arrived, without making the zeros.
    """

    __slots__ = (
        "_constants", "_program", "edges", "graph", "is_settled", "lays", "needs", "rule", "saves",
        "scratch", "single",
    )  # fmt: skip

    def __init__(self, rule: Rule, needs: int, settled: bool = False) -> None:
        self.rule = rule
        self.needs = needs
        self.single = rule.single
        self.is_settled = settled
        graph, values = _trace_vjp(rule, needs, rule.op.settled_vjp if settled else rule.op.vjp)
        used = {arg for eqn in graph.equations for arg in eqn.args if isinstance(arg, Var)}
        used |= {out for out in graph.outputs if isinstance(out, Var)}
        cotangents = graph.inputs[len(values) :]
        self.saves = tuple(i for i, var in enumerate(values) if var in used)
        self.graph = Graph(
            [*(values[i] for i in self.saves), *cotangents], (), graph.equations, graph.outputs
        )
        self.lays = _laid_part(self.graph)
        places = self._build_program()
        self.edges = tuple(
            (i, place, source)
            for i, (place, source) in enumerate(zip(places, self._sources(cotangents), strict=True))
            if place is not None
        )

    def _build_program(self) -> list[int | None]:
        """Number the values (inputs, numbers, results), so that a call names list positions; gives
        the position of each argument's cotangent."""
        place: dict[Any, int] = {var: i for i, var in enumerate(self.graph.inputs)}
        numbers = [a for eqn in self.graph.equations for a in eqn.args if not isinstance(a, Var)]
        next_number = len(place)
        top = next_number + len(numbers)
        program: list[tuple[Callable[..., Any], Any, int]] = []
        scratch = 0
        spent = _spent_after(self.graph)
        for number, eqn in enumerate(self.graph.equations):
            args = []
            for arg in eqn.args:
                if isinstance(arg, Var):
                    args.append(place[arg])
                else:
                    args.append(next_number)
                    next_number += 1
            for out in eqn.outs:
                place[out] = top
                top += 1
            into = _overwritten(eqn, spent[number])
            if into is None and not eqn.op.alias:
                scratch += sum(out.type.nbytes for out in eqn.outs)
            program.append(_call(eqn.rule, args, into))
        self._program = program
        self._constants = numbers
        self.scratch = scratch
        return [None if r is None else place[r] for r in self.graph.outputs]

    def _sources(self, cotangents: tuple[Var, ...]) -> list[int]:
        root: dict[Any, Any] = {}
        for eqn in self.graph.equations:
            if eqn.op.alias in ("view", "reshape") and isinstance(eqn.args[0], Var):
                root[eqn.outs[0]] = root.get(eqn.args[0], eqn.args[0])
            elif eqn.op.alias:
                root[eqn.outs[0]] = None
        roots = [root.get(out, out) for out in self.graph.outputs]
        place = {var: k for k, var in enumerate(cotangents)}
        inputs = set(self.graph.inputs)
        sources = []
        for origin in roots:
            if origin is None or roots.count(origin) > 1:
                sources.append(BORROWED)
            elif origin in place:
                sources.append(place[origin])
            else:
                sources.append(BORROWED if origin in inputs else FRESH)
        return sources

    def run(self, values: list[Any]) -> None:
        """Run on arrays: saved values, then cotangents; results are appended, see ``edges``."""
        values += self._constants
        append = values.append
        for call, a, b in self._program:
            if b >= 0:
                append(call(values[a], values[b]))
            elif b == -1:
                append(call(values[a]))
            elif b == -2:
                append(call(*[values[i] for i in a]))
            else:
                values += call(*[values[i] for i in a])
        if self.scratch >= WORTH_COUNTING:
            LEDGER.transient(self.scratch)


def _laid_part(graph: Graph) -> tuple[Any, TensorType] | None:
    """Where a graph lays its one argument into zeros, and the type of the whole, if that is all it
    does."""
    if len(graph.equations) != 1 or len(graph.inputs) != 1:
        return None
    (eqn,) = graph.equations
    if eqn.op.lays is None or graph.outputs != eqn.outs:
        return None
    return eqn.op.lays(**eqn.attrs), eqn.outs[0].type


def _call(rule: Rule, args: list[int], into: int | None) -> tuple[Callable[..., Any], Any, int]:
    """A call as (function, first position(s), second position or how to read the first)."""
    run = rule.run if into is None else _over_argument(rule.op.eval, into, len(args))
    if not rule.single:
        return run, args, -3
    if len(args) == 1:
        return run, args[0], -1
    if len(args) == 2:
        return run, args[0], args[1]
    return run, args, -2


def _spent_after(graph: Graph) -> list[set[Var]]:
    """For each equation, the results of others that nothing looks at any more once it has run."""
    last: dict[Any, int] = {}
    still_seen: set[Any] = {out for out in graph.outputs if isinstance(out, Var)}
    made: set[Var] = set()
    for number, eqn in enumerate(graph.equations):
        for arg in eqn.args:
            if isinstance(arg, Var):
                last[arg] = number
        if eqn.op.alias:
            still_seen.update((*eqn.args, *eqn.outs))
        made.update(eqn.outs)
    spent: list[set[Var]] = [set() for _ in graph.equations]
    for var, number in last.items():
        if var in made and var not in still_seen:
            spent[number].add(var)
    return spent


def _overwritten(eqn: Equation, spent: set[Var]) -> int | None:
    """Which argument's memory the result can take over. Only ufuncs say that they allow it."""
    out = eqn.outs[0].type
    plain = isinstance(eqn.op.eval, np.ufunc) and len(eqn.args) <= 2 and not eqn.attrs
    exact = out.dtype.compute is out.dtype.np and out.dtype.category >= dtypes.FLOATING
    if plain and exact and out.nbytes >= WORTH_COUNTING:
        for i, arg in enumerate(eqn.args):
            if isinstance(arg, Var) and arg in spent and arg.type.same(out):
                return i
    return None


def _over_argument(ufunc: Callable[..., Any], into: int, count: int) -> Callable[..., Any]:
    if count == 1:
        return lambda a: ufunc(a, out=a)
    return (lambda a, b: ufunc(a, b, out=a)) if into == 0 else (lambda a, b: ufunc(a, b, out=b))


def _trace_vjp(rule: Rule, needs: int, vjp: Any) -> tuple[Graph, list[Var]]:
    """Trace the derivative formula; gives the graph and the variables of arguments and results."""
    from evergrad.core.tracing import tracing

    op = rule.op
    assert callable(vjp)
    with tracing() as trace:
        args = [trace.input(t) for t in rule.operands]
        outs = [trace.input(t) for t in rule.out_types]
        cotangents = [trace.input(t) for t in rule.out_types]
        g: Any = cotangents[0] if op.outputs == 1 else tuple(cotangents)
        out: Any = outs[0] if op.outputs == 1 else tuple(outs)
        found = vjp(g, out, *args, **rule.attrs)
        grads = found if isinstance(found, tuple) else (found,)
        if len(grads) != len(args):
            raise AssertionError(
                f"{op.name}: the derivative gives {len(grads)} cotangents for {len(args)} arguments"
            )
        wanted: list[Tensor | None] = []
        for i, (grad, type) in enumerate(zip(grads, rule.operands, strict=True)):
            wanted.append(grad if needs >> i & 1 else None)
            if grad is None and needs >> i & 1:
                raise GradientError(
                    f"the derivative of {op.name} by argument {i} is not known; detach() that "
                    "argument if it is to count as constant"
                )
            if wanted[-1] is not None and not wanted[-1]._type.same(type):
                raise AssertionError(
                    f"{op.name}: the cotangent of argument {i} is {wanted[-1]._type}, not {type}"
                )
        graph = trace.finish(wanted).without_dead_code()
    return graph, list(graph.inputs[: len(args) + len(outs)])
