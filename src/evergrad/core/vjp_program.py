"""The vjp of a specialization as a program on arrays.

The row's formula is traced on types once; the residuals to save and the calls of the backward pass
are both read off that graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.eager.kernels import FusedVjp, is_fusable
from evergrad.core.eager.parallel_ufunc import PARALLEL_MIN_ELEMENTS, parallel_ufunc
from evergrad.core.shapes import TensorType
from evergrad.core.state import using
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.tracing import tracing
from evergrad.errors import GradientError
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.op import Specialization
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import AnyFunction

# Where the memory of a cotangent comes from: allocated by the program, or aliasing another value.
FRESH, BORROWED = -1, -2


class VjpProgram:
    """The vjp of a specialization with respect to some of its arguments.

    ``saves`` lists the residuals: ``i`` for argument ``i``, ``n + j`` for result ``j`` of an op
    with ``n`` arguments. ``graph`` takes the residuals and then the cotangents; it is what is
    traced or recorded, while arrays run through it with composites inlined. ``edges`` lists for
    each argument with a cotangent: its number, the slot of the cotangent after :meth:`run`, and the
    source of its memory: fresh, borrowed, or incoming cotangent ``k``, whose ownership it inherits.
    ``scatter_index`` is set where the only cotangent is the incoming one scattered into zeros: the
    backward pass then adds it to that part, without allocating the zeros. ``unread`` are the
    incoming cotangents that the formula does not read.
    """

    __slots__ = (
        "_calls",
        "_constants",
        "_fused",
        "_graph",
        "_restrictions",
        "edges",
        "is_nan_safe",
        "is_traced_nan_safe",
        "needs",
        "saves",
        "scatter_index",
        "scratch",
        "single",
        "specialization",
        "unread",
    )  # fmt: skip

    _restrictions: dict[int, tuple[VjpProgram, tuple[int, ...]]]

    def __init__(self, specialization: Specialization, needs: int, nan_safe: bool = False) -> None:
        self.specialization: Specialization = specialization
        self.needs: int = needs
        self.single: bool = specialization.single
        self.is_nan_safe: bool = nan_safe
        # Not so of a row for whose formula it makes no difference.
        self.is_traced_nan_safe: bool = nan_safe
        formula = specialization.formula(needs, nan_safe)
        graph, values = _trace_vjp(specialization, needs, formula)
        used = {arg for eqn in graph.equations for arg in eqn.args if isinstance(arg, Var)}
        used |= {out for out in graph.outputs if isinstance(out, Var)}
        cotangents = graph.inputs[len(values) :]
        self.saves: tuple[int, ...] = tuple(i for i, var in enumerate(values) if var in used)
        traced = Graph(
            [*(values[i] for i in self.saves), *cotangents], (), graph.equations, graph.outputs
        )
        self._graph: Graph | None = traced
        flat = traced.inlined()
        self.scatter_index: tuple[object, TensorType] | None = _scatter_part(flat)
        slots = self._build_calls(flat)
        sources = sources_of(flat, cotangents)
        self.edges: tuple[tuple[int, int, int], ...] = tuple(
            (i, slot, source)
            for i, (slot, source) in enumerate(zip(slots, sources, strict=True))
            if slot is not None
        )
        self._fused = self._fuse(flat, slots)
        read = self._fused is not None  # a kernel is given everything
        self.unread: frozenset[int] = frozenset(
            k for k, var in enumerate(cotangents) if not (read or var in used)
        )

    @property
    def graph(self) -> Graph:
        """The formula as it was traced; of a program from a template it is traced now."""
        if self._graph is None:
            self._graph = VjpProgram(self.specialization, self.needs, self.is_traced_nan_safe).graph
        return self._graph

    def restricted(self, needs: int) -> tuple[VjpProgram, tuple[int, ...]]:
        """The program for some of its cotangents only, with the positions of its residuals among
        those saved; itself if it reads others."""
        try:
            restrictions = self._restrictions
        except AttributeError:
            restrictions = self._restrictions = {}
        found = restrictions.get(needs)
        if found is None:
            specialization = self.specialization
            program = specialization.vjp_program(needs)
            if self.is_traced_nan_safe:
                program = specialization.nan_safe_program(program)
            position = {source: k for k, source in enumerate(self.saves)}
            if not position.keys() >= set(program.saves):
                program = self
            found = program, tuple([position[source] for source in program.saves])
            restrictions[needs] = found
        return found

    def _fuse(self, graph: Graph, slots: list[int | None]) -> FusedVjp | None:
        """The calls as one fused kernel, if all results are fresh memory."""
        if not is_fusable(graph) or any(source != FRESH for _, _, source in self.edges):
            return None
        calls = sum(len(eqn.outs) for eqn in graph.equations)
        top = len(graph.inputs) + len(self._constants) + calls
        return FusedVjp(graph, slots, top)

    def _build_calls(self, graph: Graph) -> list[int | None]:
        """Assign slots to the values (inputs, constants, results) and list the calls; gives the
        slot of each argument's cotangent."""
        slot: dict[object, int] = {var: i for i, var in enumerate(graph.inputs)}
        numbers = [a for eqn in graph.equations for a in eqn.args if not isinstance(a, Var)]
        next_number = len(slot)
        top = next_number + len(numbers)
        calls: list[tuple[AnyFunction, Any, int]] = []
        scratch = 0
        for eqn, reusable in zip(graph.equations, reusable_arguments(graph), strict=True):
            args = []
            for arg in eqn.args:
                if isinstance(arg, Var):
                    args.append(slot[arg])
                else:
                    args.append(next_number)
                    next_number += 1
            for out in eqn.outs:
                slot[out] = top
                top += 1
            into = reusable if eqn.outs[0].type.nbytes >= LEDGER_MIN_BYTES else None
            if into is None and not eqn.op.alias:
                scratch += sum(out.type.nbytes for out in eqn.outs)
            calls.append(call_into(eqn.specialization, args, into))
        self._calls = calls
        self._constants = numbers
        self.scratch: int = scratch
        return [None if r is None else slot[r] for r in graph.outputs]

    def run(self, values: list[object]) -> None:
        """Run on arrays: residuals, then cotangents; results are appended, see ``edges``."""
        if self._fused is not None and self._fused.is_profitable():
            self._fused.run(values)
            return
        values += self._constants
        append = values.append
        for call, a, b in self._calls:
            if b >= 0:
                append(call(values[a], values[b]))
            elif b == -1:
                append(call(values[a]))
            elif b == -2:
                append(call(*[values[i] for i in a]))
            else:
                values += call(*[values[i] for i in a])
        if self.scratch >= LEDGER_MIN_BYTES:
            LEDGER.transient(self.scratch)


def sources_of(graph: Graph, cotangents: tuple[Var, ...]) -> list[int]:
    """Where the memory of each result comes from."""
    root: dict[object, Any] = {}
    for eqn in graph.equations:
        if eqn.op.alias in ("view", "reshape") and isinstance(eqn.args[0], Var):
            root[eqn.outs[0]] = root.get(eqn.args[0], eqn.args[0])
        elif eqn.op.alias:
            root[eqn.outs[0]] = None
    roots = [root.get(out, out) for out in graph.outputs]
    position = {var: k for k, var in enumerate(cotangents)}
    inputs = set(graph.inputs)
    sources = []
    for origin in roots:
        if origin is None or roots.count(origin) > 1:
            sources.append(BORROWED)
        elif origin in position:
            sources.append(position[origin])
        else:
            sources.append(BORROWED if origin in inputs else FRESH)
    return sources


def _scatter_part(graph: Graph) -> tuple[object, TensorType] | None:
    """The index and the whole type, if the graph only scatters its one argument into zeros."""
    if len(graph.equations) != 1 or len(graph.inputs) != 1:
        return None
    (eqn,) = graph.equations
    if eqn.op.scatter_index is None or graph.outputs != eqn.outs:
        return None
    return eqn.op.scatter_index(**eqn.attrs), eqn.outs[0].type


def call_into(
    specialization: Specialization, args: list[int], into: int | None
) -> tuple[Callable[..., object], object, int]:
    """A call as (function, first slot or slots, second slot or how to read the first); ``into`` is
    the argument that it overwrites."""
    run = specialization.run if into is None else _into_argument(specialization, into, len(args))
    return (run, args, -3) if not specialization.single else shared_call(run, args)


def shared_call(
    run: Callable[..., object], args: list[int]
) -> tuple[Callable[..., object], object, int]:
    """The same for a function with one result."""
    if len(args) == 1:
        return run, args[0], -1
    if len(args) == 2:
        return run, args[0], args[1]
    return run, args, -2


def _last_uses(graph: Graph) -> list[set[Var]]:
    """Liveness: for each equation the results of others whose last use it is."""
    last: dict[object, int] = {}
    escaping: set[object] = {out for out in graph.outputs if isinstance(out, Var)}
    made: set[Var] = set()
    for number, eqn in enumerate(graph.equations):
        for arg in eqn.args:
            if isinstance(arg, Var):
                last[arg] = number
        if eqn.op.alias:
            escaping.update((*eqn.args, *eqn.outs))
        made.update(eqn.outs)
    dying: list[set[Var]] = [set() for _ in graph.equations]
    for var, number in last.items():
        if var in made and var not in escaping:
            dying[number].add(var)
    return dying


def reusable_arguments(graph: Graph) -> list[int | None]:
    """For each equation the argument that it may overwrite if that is large enough."""
    dying = _last_uses(graph)
    return [_reusable_argument(eqn, dying[i]) for i, eqn in enumerate(graph.equations)]


def _reusable_argument(eqn: Equation, dying: set[Var]) -> int | None:
    """Which dying argument a ufunc may write its result to; ``None`` if there is none."""
    out = eqn.outs[0].type
    plain = isinstance(eqn.op.eval, np.ufunc) and len(eqn.args) <= 2 and not eqn.attrs
    exact = out.dtype.compute is out.dtype.np and out.dtype.category >= dtypes.FLOATING
    if plain and exact:
        for i, arg in enumerate(eqn.args):
            if isinstance(arg, Var) and arg in dying and arg.type.same(out):
                return i
    return None


def _into_argument(specialization: Specialization, into: int, count: int) -> Callable[..., object]:
    ufunc = specialization.op.eval
    if specialization.out_types[0].numel >= PARALLEL_MIN_ELEMENTS:
        ufunc = parallel_ufunc(ufunc)
    if count == 1:
        # Not into strided memory, see inplace.py.
        return lambda a: ufunc(a, out=a if a.flags.c_contiguous else np.empty(a.shape, a.dtype))
    return (lambda a, b: ufunc(a, b, out=a)) if into == 0 else (lambda a, b: ufunc(a, b, out=b))


def _trace_vjp(specialization: Specialization, needs: int, vjp: object) -> tuple[Graph, list[Var]]:
    """Trace the vjp formula; gives the graph and the values of arguments and results."""
    op = specialization.op
    assert callable(vjp)
    with using(autocast=None, trace=None), tracing() as trace:  # cached: independent of modes
        args = [trace.input(t) for t in specialization.operands]
        outs = [trace.input(t) for t in specialization.out_types]
        cotangents = [trace.input(t) for t in specialization.out_types]
        g: Any = cotangents[0] if op.outputs == 1 else tuple(cotangents)
        out: object = outs[0] if op.outputs == 1 else tuple(outs)
        found = vjp(g, out, *args, **specialization.attrs)
        grads = found if isinstance(found, tuple) else (found,)
        if len(grads) != len(args):
            raise AssertionError(
                f"{op.name}: the derivative gives {len(grads)} cotangents for {len(args)} arguments"
            )
        wanted: list[Tensor | None] = []
        for i, (grad, type) in enumerate(zip(grads, specialization.operands, strict=True)):
            wanted.append(grad if needs >> i & 1 else None)
            if grad is None and needs >> i & 1 and op.family != "composite":
                raise GradientError(
                    f"{op.name} has no derivative with respect to argument {i}.\n"
                    "  fix: detach() that argument, so that it is a constant."
                )
            if wanted[-1] is not None and not wanted[-1]._type.same(type):
                raise AssertionError(
                    f"{op.name}: the cotangent of argument {i} is {wanted[-1]._type}, not {type}"
                )
        graph = trace.finish(wanted).without_dead_code()
    return graph, list(graph.inputs[: len(args) + len(outs)])
