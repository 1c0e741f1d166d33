"""The graph IR: a flat, typed list of equations in SSA form, and the trace that builds it.

Owns :class:`Var`, :class:`Equation`, :class:`Graph` and :class:`Trace`. Equations are emitted by
:func:`evergrad.core.bind.bind`; a trace never evaluates anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.shapes import TensorType, contiguous_strides
from evergrad.core.source_location import SourceLocation, user_line
from evergrad.core.state import using
from evergrad.core.types import Args, Array, Attrs
from evergrad.errors import TraceError

if TYPE_CHECKING:
    from evergrad.core.functionalize import FunctionalizingTrace
    from evergrad.core.node import GraphNode
    from evergrad.core.op import Op, Specialization
    from evergrad.core.storage import Storage
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import DtypeLike, Key
    from evergrad.core.views import View


_NOWHERE = np.zeros(1, np.uint8)
_NOWHERE_DATA = (int(_NOWHERE.ctypes.data), False)


class _Layout:
    __slots__ = ("__array_interface__",)

    def __init__(self, type: TensorType, strides: tuple[int, ...]) -> None:
        size = type.dtype.itemsize
        self.__array_interface__ = {
            "shape": type.shape,
            "typestr": f"|V{size}",
            "strides": tuple(s * size for s in strides),
            "data": _NOWHERE_DATA,
            "version": 3,
        }


def without_memory(type: TensorType, strides: tuple[int, ...]) -> Array:
    """An array with these strides, in elements, that must not be read."""
    return np.asarray(_Layout(type, strides)).view(type.dtype.np)


class Var:
    """One symbolic value. Immutable: a write to a tensor makes a new ``Var``.

    ``layout`` is an array with the strides of the value but no memory of its own: view ops are
    computed on it as on a real array, and it is never read. ``inactive`` says that the value
    depends on nothing that may require grad when the graph runs.
    """

    __slots__ = ("_layout", "inactive", "trace", "type")

    def __init__(
        self, type: TensorType, trace: Trace, layout: Array | None = None, inactive: bool = False
    ) -> None:
        self.type: TensorType = type
        self.trace: Trace = trace
        self.inactive: bool = inactive
        self._layout = layout

    @property
    def layout(self) -> Array:
        if self._layout is None:
            self._layout = without_memory(self.type, contiguous_strides(self.type.shape))
        return self._layout

    def take_layout(self, source: Any) -> None:
        """Take the layout of the value that this one is an update of, if it has one of its own."""
        if self._layout is not None:
            is_update = isinstance(source, Var) and source.type.same(self.type)
            is_plain = self._layout.flags.c_contiguous or not is_update
            self._layout = None if is_plain else source.layout

    def __repr__(self) -> str:
        return f"<{self.type}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise leaked()  # used as an array, so by an op outside of its trace

    def __array__(self, dtype: DtypeLike = None, copy: object = None) -> object:
        raise leaked()

    def __getitem__(self, index: object) -> Any:
        raise leaked()

    def __float__(self) -> float:
        raise leaked()


def leaked() -> TraceError:
    """The error for a symbolic value that is used where its trace is not running."""
    return TraceError(
        "a traced tensor was used after its trace had ended. It was kept (in a list, an attribute "
        "or a .grad) beyond the function given to the transform.\n"
        "  fix: return it from that function instead."
    )


class Equation:
    """``outs = op(args, attrs)``. An argument is a ``Var`` or a Python number.

    ``no_grad`` says that it was traced under ``no_grad()``: it is not recorded when it runs.
    """

    __slots__ = ("args", "attrs", "location", "no_grad", "op", "outs", "specialization")

    def __init__(
        self,
        specialization: Specialization,
        args: tuple[object, ...],
        outs: tuple[Var, ...],
        location: SourceLocation | None,
        no_grad: bool = False,
    ) -> None:
        self.specialization: Specialization = specialization
        self.op: Op = specialization.op
        self.attrs: Attrs = specialization.attrs
        self.args: Args = args
        self.outs: tuple[Var, ...] = outs
        self.location: SourceLocation | None = location
        self.no_grad: bool = no_grad

    @property
    def inner(self) -> Graph | None:
        """The inner graph of a composite."""
        body = self.attrs.get("body")
        return None if body is None else body.graph

    def apply(self, *args: object) -> Any:
        """Run it on tensors."""
        if not self.no_grad:
            return self.op.apply(*args, **self.attrs)
        with using(grad=False, no_grad=True):
            return self.op.apply(*args, **self.attrs)


def _has_view(eqn: Equation) -> bool:
    """Whether a view op has a view of its argument: a reshape needs strides that allow it."""
    layout = eqn.args[0].layout
    if eqn.op.alias != "reshape" or layout.flags.c_contiguous:
        return True
    try:
        layout.reshape(eqn.outs[0].type.shape, copy=False)
    except ValueError:
        return False
    return True


def _view_of_copy(eqn: Equation, clone: Op, equations: list[Equation]) -> Equation:
    """A view op on a copy of its argument, the equation of which is added to ``equations``."""
    (source,) = eqn.args
    types = (source.type,)
    specialization = clone.specializations.get(types) or clone.resolve(types, types, {})
    copy = Var(source.type, source.trace, inactive=source.inactive)
    equations.append(Equation(specialization, (source,), (copy,), eqn.location, eqn.no_grad))
    return Equation(eqn.specialization, (copy,), eqn.outs, eqn.location, eqn.no_grad)


class Graph:
    """A traced program.

    ``inputs`` are the arguments, ``captures`` the outside tensors it reads, ``writes`` its effects:
    the outside tensors it overwrites with their final values. ``outputs`` are its results (a
    ``Var``, or a constant).
    """

    __slots__ = ("captures", "equations", "inputs", "outputs", "writes")

    def __init__(
        self,
        inputs: Sequence[Var],
        captures: Sequence[tuple[Var, Tensor]],
        equations: Iterable[Equation],
        outputs: Sequence[object],
        writes: Sequence[tuple[Tensor, Var]] = (),
    ) -> None:
        self.inputs: tuple[Var, ...] = tuple(inputs)
        self.captures: tuple[tuple[Var, Tensor], ...] = tuple(captures)
        self.equations: tuple[Equation, ...] = tuple(equations)
        self.outputs: Args = tuple(outputs)
        self.writes: tuple[tuple[Tensor, Var], ...] = tuple(writes)

    def check(self) -> None:
        """Raise unless every value is defined once, before its uses, with its op's type."""
        defined = set(self.inputs) | {var for var, _ in self.captures}
        for eqn in self.equations:
            for arg in eqn.args:
                if isinstance(arg, Var) and arg not in defined:
                    raise AssertionError(f"{eqn.op.name} uses an undefined value {arg}")
            for out, type in zip(eqn.outs, eqn.specialization.out_types, strict=True):
                if out in defined:
                    raise AssertionError(f"{eqn.op.name} defines {out} a second time")
                if not out.type.same(type):
                    raise AssertionError(f"{eqn.op.name} gives {type}, its value has {out.type}")
                defined.add(out)
        for out in (*self.outputs, *(var for _, var in self.writes)):
            if isinstance(out, Var) and out not in defined:
                raise AssertionError(f"the result {out} is undefined")

    def without_dead_code(self) -> Graph:
        """The graph without equations that have no effect and that no output and no write depends
        on."""
        needed = {out for out in self.outputs if isinstance(out, Var)}
        needed |= {var for _, var in self.writes}
        kept = []
        for eqn in reversed(self.equations):
            if eqn.op.has_effect or not needed.isdisjoint(eqn.outs):
                kept.append(eqn)
                needed.update([arg for arg in eqn.args if isinstance(arg, Var)])
        captures = [(var, tensor) for var, tensor in self.captures if var in needed]
        return Graph(self.inputs, captures, reversed(kept), self.outputs, self.writes)

    def renamed(self, new: dict[object, Var]) -> Graph:
        """The graph with other values in the place of some."""
        equations = [
            Equation(
                e.specialization,
                tuple([new.get(a, a) if a.__class__ is Var else a for a in e.args]),
                e.outs, e.location, e.no_grad,
            )
            for e in self.equations
        ]  # fmt: skip
        outputs = [new.get(o, o) if isinstance(o, Var) else o for o in self.outputs]
        return Graph([new.get(v, v) for v in self.inputs], self.captures, equations, outputs)

    def with_plain_inputs(self, count: int, clone: Op, new: dict[Var, Var] | None = None) -> Graph:
        """The graph with other values for its first ``count`` inputs, and for those in ``new``,
        which have no memory; the layouts of values that alias them follow. What was a view of an
        input by its strides alone is a view of a copy, made by the row ``clone``."""
        renamed: dict[object, Var] = {var: Var(var.type, var.trace) for var in self.inputs[:count]}
        for var, other in (new or {}).items():
            renamed[var] = renamed[other]
        made = self.renamed(renamed)
        equations: list[Equation] = []
        for eqn in made.equations:
            if eqn.op.alias and isinstance(eqn.args[0], Var):
                if not _has_view(eqn):
                    eqn = _view_of_copy(eqn, clone, equations)
                eqn.outs[0]._layout = eqn.op.eval(eqn.args[0].layout, **eqn.attrs)
            else:
                for out in eqn.outs:
                    out.take_layout(eqn.args[0] if eqn.args else None)
            equations.append(eqn)
        return Graph(made.inputs, made.captures, equations, made.outputs, made.writes)

    def inlined(self, kept: Collection[int] = ()) -> Graph:
        """The graph with inner graphs in the place of composites, except those whose ``id`` is
        among ``kept``."""
        if all(eqn.inner is None or id(eqn) in kept for eqn in self.equations):
            return self
        equations: list[Equation] = []
        env: dict[Var, Var] = {}
        for eqn in self.equations:
            args = tuple([env.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
            if eqn.inner is not None and id(eqn) not in kept:
                env.update(zip(eqn.outs, _inline(eqn, args, eqn, equations), strict=True))
            else:
                equations.append(
                    Equation(eqn.specialization, args, eqn.outs, eqn.location, eqn.no_grad)
                )
        writes = [(tensor, env.get(var, var)) for tensor, var in self.writes]
        outputs = [env.get(o, o) if isinstance(o, Var) else o for o in self.outputs]
        return Graph(self.inputs, self.captures, equations, outputs, writes)

    def __str__(self) -> str:
        names: dict[object, str] = {}

        def name(value: object) -> str:
            if not isinstance(value, Var):
                return repr(value)
            if value not in names:
                names[value] = f"v{len(names)}"
            return names[value]

        def typed(var: object) -> str:
            return f"{name(var)}: {var.type}" if isinstance(var, Var) else repr(var)

        lines = [f"graph({', '.join(map(typed, self.inputs))}) {{"]
        lines += [f"  {typed(var)} = captured" for var, _ in self.captures]
        for eqn in self.equations:
            words = [name(arg) for arg in eqn.args]
            words += [f"{key}={value!r}" for key, value in eqn.attrs.items()]
            lines.append(f"  {', '.join(map(typed, eqn.outs))} = {eqn.op.name}({', '.join(words)})")
        lines += [f"  write {name(var)}" for _, var in self.writes]
        lines.append(f"  return {', '.join(map(name, self.outputs))}")
        return "\n".join([*lines, "}"])


def _inline(
    eqn: Equation, args: Sequence[object], outer: Equation, equations: list[Equation]
) -> list[Var]:
    """Write the inner equations of a composite, at the location of the ``outer`` one; gives its
    results."""
    graph = eqn.inner
    assert graph is not None
    env: dict[object, Any] = dict(zip(graph.inputs, args, strict=True))
    for inner in graph.equations:
        given = tuple([env[a] if isinstance(a, Var) else a for a in inner.args])
        outs: Sequence[Any]
        if inner.inner is not None:
            outs = _inline(inner, given, outer, equations)
        else:
            outs = tuple([Var(out.type, outer.outs[0].trace) for out in inner.outs])
            no_grad = inner.no_grad or outer.no_grad
            equations.append(Equation(inner.specialization, given, outs, outer.location, no_grad))
        env.update(zip(inner.outs, outs, strict=True))
    return [env[out] for out in graph.outputs]


class Write:
    """The writes of a trace to one outside storage: its former value, and the recorded bases.

    The final value is written through the one base whose node the writes replaced, if there is one,
    or else through a detached handle.
    """

    __slots__ = ("bases", "handle", "refreshed", "storage", "value", "version")

    def __init__(self, storage: Storage, handle: Tensor) -> None:
        self.storage: Storage = storage
        self.value: Array | Var = storage.value
        self.version: int = storage.version
        # The outside views whose nodes were rebuilt since.
        self.refreshed: list[View] = []
        self.handle: Tensor = handle
        self.bases: list[tuple[Tensor, Any, int]] = []

    def enter(self, base: Tensor) -> None:
        if not any(base is other for other, _, _ in self.bases):
            self.bases.append((base, base._node, base._index))

    def target(self) -> Tensor:
        whole = [base for base, _, _ in self.bases if base._view is None]
        return whole[0] if len(whole) == 1 else self.handle

    def has_recorded(self) -> bool:
        """Whether a write has given a tensor another node."""
        return any(base._node is not node or base._index != i for base, node, i in self.bases)

    def undo(self) -> None:
        """Restore the storage and the nodes of the bases; views rebuild theirs."""
        self.storage.value = self.value
        self.storage.version = self.version
        for view in self.refreshed:
            view.outdate()
        for base, node, index in self.bases:
            base._node, base._index = node, index


class Trace:
    """Collects the equations of one function while it runs on symbolic values.

    ``depth`` orders nested traces: the inner one captures values of the outer one (and arrays),
    never the other way round. An outside storage that is written holds a symbolic value until
    :meth:`finish` restores its own.
    """

    def __init__(self, parent: Trace | None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        # The trace, this or an enclosing one, that also emits ops on outside tensors alone.
        self.functionalizer: FunctionalizingTrace | None = (
            None if parent is None else parent.functionalizer
        )
        self.equations: list[Equation] = []
        self.inputs: list[Var] = []
        self.captures: list[tuple[Var, Tensor]] = []
        self.written: dict[int, Write] = {}
        self.local: dict[int, Storage] = {}
        self._captured: dict[tuple[int, int, int], Var] = {}
        self._read: dict[int, Storage] = {}
        # Where a value that may have a node was overwritten under no_grad().
        self.no_grad_write: SourceLocation | None = None
        self._known: dict[tuple[object, ...], tuple[Var, ...]] = {}

    def note_backward_through(self, node: GraphNode) -> None:
        """A node is run while this trace records."""

    def note_refreshed(self, storage: Storage, view: View) -> None:
        """Note that a view has the node that belongs to a version made by this trace."""
        trace: Trace | None = self
        while trace is not None:
            write = trace.written.get(id(storage))
            if write is not None:
                write.refreshed.append(view)
            trace = trace.parent

    # Whether its values can be computed when Python reads one of them.
    is_lazy = False
    # Whether it records nothing any more.
    is_off = False

    def note_handle(self, tensor: Tensor) -> None:
        """A tensor with a value of this trace was made."""

    def note_made(self, tensor: Tensor) -> None:
        """A handle on an outside storage was made."""

    def note_node(self, node: object) -> None:
        """A node that saves values of this trace was made."""

    def note_sparse(self, weight: Tensor, has_all_rows: bool) -> None:
        """The gradient of a tensor is sparse where this trace does not record; whether it then has
        the cotangents of all rows that are looked up, as they are."""

    def must_write_now(self, storage: Storage) -> bool:
        """Whether a write to a storage must not be deferred."""
        return False

    def leave(self, what: str) -> None:
        """Evaluate the rest of the traced function eagerly."""
        self.materialize(what)

    def materialize(self, what: str) -> None:
        """Compute the values of this trace, because Python reads one of them; an ordinary trace
        has none."""
        raise TraceError(
            f"{what}, but while tracing it has no value."
            f"\n  where: {user_line()}\n  fix: keep the computation in tensors "
            "(`evergrad.where` instead of `if`), or read the value outside of the traced function."
        )

    def encloses(self, other: Trace | None) -> bool:
        """Whether this is the other trace or encloses it."""
        while other is not None:
            if other is self:
                return True
            other = other.parent
        return False

    def add_input(self, type: TensorType) -> Var:
        var = Var(type, self)
        self.inputs.append(var)
        return var

    def capture(self, tensor: Tensor) -> Var:
        """An outside tensor as a value of this trace: one capture per tensor, memory and version.
        What a handle shows may be replaced (``.data``, ``set_()``) while the trace records."""
        value = tensor._value
        key = (id(tensor), id(value), tensor._storage.version)
        var = self._captured.get(key)
        if var is None:
            if isinstance(value, Var) and not value.trace.encloses(self):
                raise leaked()
            layout = value.layout if isinstance(value, Var) else value
            inactive = value.inactive if isinstance(value, Var) else tensor._node is None
            var = self._captured[key] = Var(tensor._type, self, layout, inactive)
            self.captures.append((var, tensor))
            self._read[id(tensor._storage)] = tensor._storage
        return var

    def reader(self, storage: Storage) -> Trace | None:
        """The innermost trace, this or an enclosing one, that captured a storage: a write to it
        becomes an effect of that trace."""
        trace: Trace | None = self
        while trace is not None and id(storage) not in trace._read:
            trace = trace.parent
        return trace

    def emit(
        self,
        specialization: Specialization,
        args: tuple[object, ...],
        location: SourceLocation | None,
        layout: Array | None = None,
        no_grad: bool = False,
    ) -> tuple[Var, ...]:
        """Append an equation, or reuse an equal one (common subexpressions)."""
        op = specialization.op
        pure = not (op.random or op.communicates)
        key: Key = ()
        if pure:
            values = [id(a) if a.__class__ is Var else (type(a), repr(a)) for a in args]
            key = (id(specialization), no_grad, *values)
            known = self._known.get(key)
            if known is not None:
                return known
        inactive = True
        if not no_grad:
            for arg in args:
                if arg.__class__ is Var and not arg.inactive:
                    inactive = False
                    break
        outs = tuple([Var(type, self, layout, inactive) for type in specialization.out_types])
        self.equations.append(Equation(specialization, args, outs, location, no_grad))
        if pure:
            self._known[key] = outs
        return outs

    def note_write(self, storage: Storage, handle: Tensor, base: Tensor | None) -> None:
        """Note the value of an outside storage before this trace first writes to it, and the tensor
        ``base`` whose node the write replaces."""
        write = self.written.get(id(storage))
        if write is None:
            write = self.written[id(storage)] = Write(storage, handle)
        if base is not None:
            write.enter(base)

    def adopt(self, storage: Storage) -> None:
        """Note a storage allocated while this trace runs: writes to it are no effects outside."""
        trace: Trace | None = self
        while trace is not None:
            trace.local[id(storage)] = storage
            trace = trace.parent

    def finish(self, outputs: Sequence[object]) -> Graph:
        writes = []
        for number, write in self.written.items():
            assert isinstance(write.storage.value, Var)
            if number not in self.local:
                writes.append((write.target(), write.storage.value))
        graph = Graph(self.inputs, self.captures, self.equations, outputs, writes)
        self.abandon()
        return graph

    def abandon(self) -> None:
        """Restore the value of every written outside storage and clear the trace.

        Values reference their trace; a trace that referenced them would close a cycle.
        """
        for write in self.written.values():
            write.undo()
        for held in (self.equations, self.inputs, self.captures):
            held.clear()
        for known in (self.written, self.local, self._captured, self._read, self._known):
            known.clear()
