"""Composites: functions of several ops that stand in a graph as one named equation.

A :class:`Composite` is a function with a name. While it is traced it becomes one equation, whose
attribute ``body`` holds the inner graph for the types and attributes of the call; its reverse
derivative is one equation too (``<name>_backward``), whose inner graph takes the arguments and the
cotangents that it reads. Eagerly it is an :class:`~evergrad.core.eager.fusion.EagerComposite`.

What holds of an inner graph (:class:`Body`):

- It is pure and closed: it reads its inputs only, writes nothing and draws nothing. What is drawn
  at random is drawn outside and given as an argument.
- It is made once for given types and attributes. Its equations are rows of the table or other
  composites.
- The derivative computes what it needs of the forward pass again, in the same equations. Where both
  are inlined into one trace equal equations are one: nothing is computed twice, and no residuals
  have to be declared.
- Its results are contiguous and share no memory with its inputs, like the result of any row.

:meth:`Graph.inlined` puts inner graphs in the place of their equations. Forward mode, batching and
derivatives evaluated with NumPy use inlined graphs; the compiler decides for each equation
(:mod:`evergrad.compiler.composites`). The derivative of a ``_backward`` equation is inlined, so
derivatives of any order follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.eager.fusion import EagerComposite, Size, register
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.interpret import interpret
from evergrad.core.op import TABLE, Op, Specialization
from evergrad.core.python_numbers import PythonNumber, plain_attributes
from evergrad.core.recording import make_nan_safe
from evergrad.core.row_facts import AtenName, AutocastPolicy, lowered
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE, State, using
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.core.tracing import owner_of, tracing
from evergrad.core.types import Attrs
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Key
    from evergrad.core.vjp_program import VjpProgram

_grad: ExtensionPoint[..., Sequence[Tensor | None]] = ExtensionPoint("grad")

# Bodies kept for one composite; when there are more all are cleared and those in use come back.
_MOST_BODIES = 256


# -- functions as graphs ------------------------------------------------------------------------


class Structure:
    """A function with attributes, on tensors of given types (``None`` where none is given)."""

    def __init__(
        self, function: Callable[..., object], types: Sequence[TensorType | None],
        attrs: Attrs,
    ) -> None:  # fmt: skip
        self.function = function
        self.attrs = attrs
        self.present: tuple[bool, ...] = tuple(type is not None for type in types)
        self.types: tuple[TensorType, ...] = tuple(type for type in types if type is not None)

    def call(self, function: Callable[..., object], tensors: Sequence[Tensor]) -> Any:
        """Call a function of the same form, with ``None`` where no tensor is given."""
        given = iter(tensors)
        args = [next(given) if is_there else None for is_there in self.present]
        return function(*args, **self.attrs)

    def apply(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The function itself; its results as a tuple."""
        found = self.call(self.function, tensors)
        return found if isinstance(found, tuple) else (found,)

    def traced(self) -> Graph:
        """The function as a graph."""
        with using(autocast=None, trace=None), tracing() as tracer:
            inputs = [tracer.input(type) for type in self.types]
            return tracer.finish(self.apply(inputs)).without_dead_code()

    def derivative(
        self, needs: int, hidden: Sequence[TensorType] = (), with_results: bool = False,
        nan_safe: bool = False,
    ) -> tuple[list[Var], list[Var], Graph]:  # fmt: skip
        """The gradients by the arguments in the bit set ``needs`` as a graph, with one output for
        each argument, after the results if these are wanted; and the values of arguments and
        cotangents, also of ``hidden`` results, which have no influence. ``nan_safe``: cotangents of
        zero stay zero."""
        with using(autocast=None, trace=None), tracing(grad=True) as tracer:
            inputs = [tracer.input(type) for type in self.types]
            arguments = list(tracer.trace.inputs)
            targets = [t.requires_grad_() for i, t in enumerate(inputs) if needs >> i & 1]
            outs = self.apply(inputs)
            if nan_safe:
                make_nan_safe([out._node for out in outs])
            given = [tracer.input(out._type) for out in outs]
            grads = iter(_gradients(outs, given, targets))
            wanted = [next(grads) if needs >> i & 1 else None for i in range(len(inputs))]
            cotangents = [g._value for g in (*given, *map(tracer.input, hidden))]
            graph = tracer.finish([*(outs if with_results else ()), *wanted])
            return arguments, cotangents, graph.without_dead_code()


def _gradients(
    outs: Sequence[Tensor], given: Sequence[Tensor], targets: Sequence[Tensor]
) -> Sequence[Tensor | None]:
    pairs = [(out, g) for out, g in zip(outs, given, strict=True) if out.requires_grad]
    if not pairs:
        return [None] * len(targets)
    results, directions = zip(*pairs, strict=True)
    return _grad(results, targets, directions, allow_unused=True)


# -- inner graphs -------------------------------------------------------------------------------


class Derivative(NamedTuple):
    """The reverse derivative of a body: ``graph`` takes the values numbered ``reads`` (arguments,
    then cotangents), and gives the cotangents of the arguments numbered ``wanted``. ``body`` holds
    it where it is to be an equation of its own."""

    graph: Graph
    body: Body | None
    reads: tuple[int, ...]
    wanted: tuple[int, ...]


class Body:
    """The inner graph of a composite, for given types and attributes.

    ``key`` says what it was made of, in plain data and types. ``selected`` are the inputs behind a
    selection inside, ``behind`` those that only elementwise rows, reductions and rows that move
    elements separate from the results: see :func:`evergrad.core.recording.make_nan_safe`. That of a
    derivative knows the body ``of`` the composite, and the arguments (``wanted``) whose cotangents
    it gives.
    """

    __slots__ = (
        "behind",
        "derivatives",
        "graph",
        "key",
        "of",
        "op",
        "selected",
        "structure",
        "uncast",
        "wanted",
    )  # fmt: skip

    def __init__(
        self, op: CompositeOp, structure: Structure, graph: Graph, key: object,
        of: Body | None = None, wanted: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        assert not graph.captures and not graph.writes, f"{op.name} is not closed: {graph}"
        self.op: CompositeOp = op
        self.structure: Structure = structure
        self.graph: Graph = graph
        self.key: Any = key
        self.of: Body | None = of
        self.wanted: tuple[int, ...] = wanted
        self.derivatives: dict[tuple[int, bool], Derivative] = {}
        flat = graph.inlined()
        rows = [eqn.op for eqn in flat.equations]
        assert not any(row.random for row in rows), f"{op.name} draws random numbers: {graph}"
        # Whether autocast leaves all of it as it is.
        self.uncast: bool = all(row.autocast is AutocastPolicy.KEEP for row in rows)
        self.selected: tuple[int, ...] = _behind_selections(flat, ())
        self.behind: tuple[int, ...] = _behind_selections(flat, flat.outputs)

    def __repr__(self) -> str:
        attrs = "".join(f", {key}={value!r}" for key, value in self.structure.attrs.items())
        return f"Body({len(self.graph.equations)} equations{attrs})"

    def run(self, *arrays: Any) -> Any:
        """Evaluate it with NumPy."""
        env: dict[object, Any] = dict(zip(self.graph.inputs, arrays, strict=True))
        for eqn in self.graph.equations:
            found = eqn.specialization.run(*[env[a] if isinstance(a, Var) else a for a in eqn.args])
            env.update(zip(eqn.outs, (found,) if eqn.specialization.single else found, strict=True))
        results = tuple(env[out] for out in self.graph.outputs)
        return results[0] if self.op.outputs == 1 else results

    def derivative(self, needs: int, nan_safe: bool) -> Derivative:
        """The reverse derivative by the arguments in the bit set ``needs``."""
        found = self.derivatives.get((needs, nan_safe))
        if found is None:
            found = self.derivatives[needs, nan_safe] = self._derivative(needs, nan_safe)
        return found

    def _derivative(self, needs: int, nan_safe: bool) -> Derivative:
        arguments, cotangents, graph = self.structure.derivative(needs, nan_safe=nan_safe)
        wanted = tuple(i for i, out in enumerate(graph.outputs) if out is not None)
        values = [*arguments, *cotangents]
        used = {a for eqn in graph.equations for a in eqn.args} | set(graph.outputs)
        used.update(arguments[: self.op.kernel_arguments])
        reads = tuple(i for i, var in enumerate(values) if var in used)
        inputs = [values[i] for i in reads]
        outputs = [graph.outputs[i] for i in wanted]
        pruned = _with_own_results(Graph(inputs, (), graph.equations, outputs))
        body = None
        if self.op.derivative is not None:
            structure = Structure(partial(interpret, pruned), [v.type for v in inputs], {})
            key = self.key, needs, nan_safe
            body = Body(self.op.derivative, structure, pruned, key, self, wanted)
        return Derivative(pruned, body, reads, wanted)


def _behind_selections(graph: Graph, outputs: tuple[Var, ...]) -> tuple[int, ...]:
    """The inputs from which elements may go to a selection, or to one of ``outputs``, and nowhere
    else."""
    reached = {out for out in outputs if isinstance(out, Var)}
    for eqn in reversed(graph.equations):
        if eqn.op.selects:
            reached.update(a for a in eqn.args if isinstance(a, Var))
        ends = eqn.op.family in ("bilinear", "opaque") or not eqn.op.differentiable or eqn.no_grad
        if not ends and not reached.isdisjoint(eqn.outs):
            reached.update(a for a in eqn.args if isinstance(a, Var))
    return tuple(i for i, var in enumerate(graph.inputs) if var in reached)


def _with_own_results(graph: Graph) -> Graph:
    """The graph with results that are contiguous and no views of its inputs."""
    seen = set(graph.inputs)
    for eqn in graph.equations:
        if eqn.op.alias and eqn.args[0] in seen:
            seen.update(eqn.outs)
    if all(out not in seen and out.layout.flags.c_contiguous for out in graph.outputs):
        return graph
    with using(autocast=None, trace=None), tracing() as tracer:
        given = [tracer.input(var.type) for var in graph.inputs]
        return tracer.finish([bind(TABLE["clone"], out) for out in interpret(graph, *given)])


# -- rows ---------------------------------------------------------------------------------------


class CompositeOp(Op):
    """The row of a composite, or of its derivative (``derivative`` is the row of that of its own).

    It is in no table: its only attribute is the body, which answers for it. Of the arguments its
    derivative takes those that it reads, and the first ``kernel_arguments``: a kernel may read them
    where the inner graph does not.
    """

    specializations: dict[object, Specialization]

    __slots__ = ("derivative", "function", "kernel_arguments")

    def __init__(
        self, name: str, outputs: int, function: Composite | None = None,
        derivative: CompositeOp | None = None, kernel_arguments: int = 0, aten: AtenName = "",
    ) -> None:  # fmt: skip
        self.function: Composite | None = (
            function  # called where a body of given arguments is not to be used
        )
        self.derivative: CompositeOp | None = derivative
        self.kernel_arguments: int = kernel_arguments
        super().__init__(
            name, family="composite", in_table=False,
            type=lambda *types, body: tuple(out.type for out in body.graph.outputs),
            eval=lambda *arrays, body: body.run(*arrays), vjp=_pull, jvp=None, batch=None,
            outputs=outputs, upcast=False, emit=lowered("passes.composites"),
            autocast=AutocastPolicy.KEEP, aten=aten,
        )  # fmt: skip
        self.nan_safe_vjp: Callable[..., object] = _pull

    def resolve(self, key: object, types: Any, attrs: Attrs) -> Specialization:
        specialization = self.specializations[key] = BodySpecialization(self, attrs["body"])
        return specialization

    def apply(self, *args: Any, **attrs: Any) -> Any:
        body: Body = attrs["body"]
        if self.function is not None:
            return body.structure.call(self.function, args)
        if _is_traced(STATE.get(), args):
            return bind(self, *args, body=body)
        return interpret(body.graph, *args)

    def clear(self) -> None:
        """Let go of all specializations; these and their vjp programs know each other."""
        cleared, self.specializations = self.specializations, {}
        for specialization in cleared.values():
            specialization.vjp_programs = {}


class BodySpecialization(Specialization):
    """A composite with its body."""

    is_direct: bool
    single: bool
    operands: tuple[TensorType, ...]
    types: tuple[TensorType, ...]

    __slots__ = ("body",)

    def __init__(self, op: CompositeOp, body: Body) -> None:
        self.body: Body = body
        self.op: CompositeOp = op
        self.attrs: dict[str, Body] = {"body": body}
        self.types = self.operands = body.structure.types
        self.out_types: tuple[Any, ...] = tuple(out.type for out in body.graph.outputs)
        self.casts: tuple[dtypes.dtype | None, ...] | None = None
        self.single = self.is_direct = op.outputs == 1
        self.selects: bool = bool(body.selected)
        self.differentiable: bool = any(t.dtype.category >= dtypes.FLOATING for t in self.out_types)
        self.always_contiguous = False
        self.vjp_programs: dict[int, VjpProgram] = {}
        self.run: AnyFunction = body.run

    def formula(self, needs: int, nan_safe: bool) -> Callable[..., object]:
        return partial(_pull, needs, nan_safe)

    def selected_parents(self, parents: Sequence[object]) -> Sequence[object]:
        return [parents[i] for i in self.body.selected]

    def nan_safe_parents(self, parents: Sequence[object]) -> Sequence[Any]:
        return [parents[i] for i in self.body.behind]


def _pull(
    needs: int,
    nan_safe: bool,
    g: Any,
    out: object,
    *args: Tensor,
    body: Body,
) -> tuple[Tensor | None, ...]:
    """The cotangents of a composite's arguments, as one equation."""
    found = body.derivative(needs, nan_safe)
    if not found.wanted:
        return (None,) * len(args)
    values = [*args, *((g,) if body.op.outputs == 1 else g)]
    given = [values[i] for i in found.reads]
    if found.body is None:
        results = interpret(found.graph, *given)
    else:
        results = bind(found.body.op, *given, body=found.body)
    grads: list[Tensor | None] = [None] * len(args)
    for i, grad in zip(found.wanted, results, strict=True):
        grads[i] = grad
    return tuple(grads)


# -- functions ----------------------------------------------------------------------------------


class Composite(EagerComposite):
    """A function of several ops that traces as one equation of its name.

    ``outputs`` tells how many tensors it gives. ``derivative`` is false for a function that is
    itself the derivative of a row: its own derivative is then inlined.
    """

    def __init__(
        self, function: Callable[..., object], name: str, least: int | None, size: Size | None,
        keeps: int, outputs: int, derivative: bool, aten: AtenName,
    ) -> None:  # fmt: skip
        super().__init__(function, least, size, keeps, aten=aten)
        # The row of a derivative gives a tuple, of as many cotangents as are needed.
        backward = CompositeOp(f"{name}_backward", 2) if derivative else None
        self.op: CompositeOp = CompositeOp(name, outputs, self, backward, keeps, aten)
        self.bodies: dict[object, Body] = {}

    def __call__(self, *args: Any, **attrs: object) -> Any:
        state = STATE.get()
        if state.trace is not None:
            attrs = {key: _plain_unless_lifted(value) for key, value in attrs.items()}
            tensors = [a for a in args if a is not None]
            if _is_traced(state, tensors) and not any(map(_is_lifted, attrs.values())):
                body = self.body(tuple([None if a is None else a._type for a in args]), attrs)
                if state.autocast is None or body.uncast:
                    return bind(self.op, *tensors, body=body)
        if self.least is None:
            return self.function(*args, **attrs)
        return super().__call__(*args, **attrs)

    @property
    def traced(self) -> Composite:
        return self

    def keeps_precision(self, types: Key, attrs: Attrs) -> bool:
        return not any(map(_is_lifted, attrs.values())) and self.body(types, attrs).uncast

    def body(self, types: tuple[TensorType | None, ...], attrs: Attrs) -> Body:
        """The inner graph for arguments of these types."""
        default = dtypes.get_default_dtype()
        key = types, tuple(attrs.items()), default
        body = self.bodies.get(key)
        if body is None:
            if len(self.bodies) >= _MOST_BODIES:
                self.clear()
            structure = Structure(self.function, types, attrs)
            said = self.op.name, types, tuple(attrs.items()), default
            graph = _with_own_results(structure.traced())
            body = self.bodies[key] = Body(self.op, structure, graph, said)
        return body

    def clear(self) -> None:
        super().clear()
        cleared, self.bodies = self.bodies, {}
        for body in cleared.values():
            body.derivatives = {}  # a body and its derivatives know each other
        self.op.clear()
        if self.op.derivative is not None:
            self.op.derivative.clear()


def _is_traced(state: State, tensors: Sequence[Tensor]) -> bool:
    """Whether an op on these tensors would become an equation."""
    if state.trace is None or any(t._type.__class__ is not TensorType for t in tensors):
        return False
    return owner_of(state.trace, None, tuple(tensors)) is not None


def _is_lifted(value: object) -> bool:
    """Whether an attribute is known only when the program runs: the function is then inlined."""
    return isinstance(value, SymbolicNumber | Tensor)


def _plain_unless_lifted(value: object) -> object:
    """An attribute with a float of Python state as an input of the program, and others as they
    are."""
    if type(value) is PythonNumber and type(value.value) is float:
        return value.symbolic()
    return plain_attributes(value)


def composite(
    name: str, least: int | None = None, size: Size | None = None, keeps: int = 0,
    outputs: int = 1, derivative: bool = True, aten: AtenName = "",
) -> Callable[[Callable[..., object]], Composite]:  # fmt: skip
    """Declare a function a composite (see :class:`Composite`), which eager mode runs as one kernel
    from the size ``least`` on (see :class:`~evergrad.core.eager.fusion.EagerComposite`)."""

    def declare(function: Callable[..., object]) -> Composite:
        made = Composite(function, name, least, size, keeps, outputs, derivative, aten)
        register(made)
        return made

    return declare
