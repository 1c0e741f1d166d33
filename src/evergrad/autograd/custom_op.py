"""A call of a custom function as one equation.

So forward mode, ``vmap`` and a later ``backward`` of what was traced all use the user's derivative
and not that of the ops inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.autograd.engine import grad
from evergrad.autograd.function import Function, FunctionCtx, run_forward, unrecorded
from evergrad.core import dtypes
from evergrad.core.op import Op, Specialization
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.rng.generator import Generator
from evergrad.core.row_facts import lowered
from evergrad.core.source_location import user_location
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor, current_node, detached, fresh
from evergrad.core.trace import Trace
from evergrad.core.tracing import in_trace, trace_value
from evergrad.core.vmap import vmap
from evergrad.extension import provides
from evergrad.ops.rows.creation.constants import zeros_like
from evergrad.ops.rows.movement.views import expand, movedim, view_as_is

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


@provides("function_equation")
def as_equation(
    cls: type[Function], trace: Trace, args: Sequence[Any], outputs: list[object]
) -> list[object]:
    """Stand an equation with the user's derivative in front of the traced results."""
    at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    fixed = [None if i in at else a for i, a in enumerate(args)]

    def build(inputs: Sequence[object]) -> tuple[object, ...]:
        given = list(fixed)
        for i, tensor in zip(at, inputs, strict=True):
            given[i] = tensor
        return tuple(given)

    tensors = [o for o in outputs if isinstance(o, Tensor)]
    op = CustomOp(cls, len(at), build, fixed)
    values = [trace_value(trace, args[i]) for i in at] + [trace_value(trace, o) for o in tensors]
    types = tuple(v.type for v in values)
    specialization = Specialization(op, {}, types, types, types[len(at) :], None)
    emitted = trace.emit(
        specialization, tuple(values), user_location(2), no_grad=STATE.get().no_grad
    )
    found = iter([fresh(v, v.type) for v in emitted])
    return [next(found) if isinstance(o, Tensor) else o for o in outputs]


class CustomOp(Op):
    """One traced call: its arguments are the inputs and then the results of the traced forward.

    The value is those results; the derivative is the user's.
    """

    __slots__ = ("build", "cls", "count", "fixed", "randomness")

    def __init__(
        self, cls: type[Function], count: int, build: Callable[..., object], fixed: Leaves
    ) -> None:
        self.cls: type[Function] = cls
        self.count: int = count  # how many of the arguments are inputs
        self.build: Callable[..., Any] = build  # the call's arguments from its input tensors
        self.fixed: Leaves = fixed  # the arguments, ``None`` for tensors
        self.randomness: str = "error"  # of the vmap that batches it
        super().__init__(
            f"custom:{cls.__name__}", family="custom", in_table=False,
            type=lambda *types: tuple(types[count:]), eval=lambda *arrays: arrays[count:],
            vjp="custom", jvp=self.forward_mode, batch=self.batched,
            outputs=2,  # always a tuple
            random=True,  # never merged or dropped
            upcast=False, emit=lowered("its traced forward"), doc=cls.__doc__ or "",
        )  # fmt: skip

    def apply(self, *args: Any, **attrs: Any) -> Any:
        inputs = args[: self.count]
        if STATE.get().grad and any(current_node(a) is not None for a in inputs):
            return _tensors_of(self.cls.apply(*self.build(inputs)))
        return tuple(args[self.count :])

    def forward_mode(self, tangents: Sequence[object], out: Any, *args: Any) -> Any:
        inputs, moving = args[: self.count], tangents[: self.count]
        if self.cls.jvp is Function.jvp:
            return self._transposed(moving, inputs)
        ctx = FunctionCtx()
        given = self.build(inputs)
        ctx.needs_input_grad = tuple(False for _ in given)
        with using(grad=False), _drawing_nothing(self.cls):
            result = run_forward(self.cls, ctx, given)
        results = result if isinstance(result, tuple) else (result,)
        ctx._node = unrecorded(self.cls)
        ctx._saved = _with_history(ctx, results, out)
        found = self.cls.jvp(ctx, *_along(given, inputs, moving))
        return found if isinstance(found, tuple) else (found,)

    def _transposed(self, tangents: Sequence[Any], inputs: Sequence[Tensor]) -> Any:
        """Forward mode from the user's backward, which is linear in the cotangents."""
        recording = STATE.get().grad and any(
            t is not None and current_node(t) is not None for t in (*inputs, *tangents)
        )
        with using(grad=True):
            watched = [_as_place(i) for i in inputs]
            with _drawing_nothing(self.cls):
                outs = _tensors_of(self.cls.apply(*self.build(watched)))
            live = [o for o in outs if current_node(o) is not None]
            probes = [zeros_like(o).requires_grad_() for o in live]
            places = [w for w, t in zip(watched, tangents, strict=True) if t is not None]
            pulled = grad(live, places, probes, create_graph=True, materialize_grads=True)
            directions = [t for t in tangents if t is not None]
            pairs = [(g, t) for g, t in zip(pulled, directions, strict=True) if g.requires_grad]
            moved: Any = [None] * len(probes)
            if pairs:
                moved = grad([g for g, _ in pairs], probes, [t for _, t in pairs],
                             create_graph=recording, allow_unused=True)  # fmt: skip
        rest = iter(moved)
        return tuple(next(rest) if current_node(o) is not None else None for o in outs)

    def batched(self, op: Op, args: Sequence[Any], dims: Sequence[Any], **attrs: object) -> Any:
        inputs, at = args[: self.count], dims[: self.count]
        if all(d is None for d in at):
            return _with_front_dims(tuple(args[self.count :]), tuple(dims[self.count :]))
        given = self.build(inputs)
        if self.cls.vmap is not Function.vmap:
            where = tuple(_along(given, inputs, at))
            info = _VmapInfo(inputs, at, self.randomness)
            out, out_dims = self.cls.vmap(info, where, *given)
            return _with_front_dims(out, out_dims)
        function = _batched_function(self, at)
        return function.apply(*inputs), 0


class _VmapInfo:
    """What a user's ``vmap`` rule is told."""

    def __init__(self, inputs: Sequence[Tensor], dims: Sequence[Any], randomness: str) -> None:
        self.batch_size = next(
            t._type.shape[d] for t, d in zip(inputs, dims, strict=True) if d is not None
        )
        self.randomness = randomness


@contextmanager
def _drawing_nothing(cls: type[Function]) -> Iterator[None]:
    """Raise if a forward that is run once more, for its derivative, draws random numbers: they
    would not be those of the first run."""
    trace = STATE.get().trace
    start = 0 if trace is None else len(trace.equations)
    state = Generator.get_state(default_generator())
    yield
    if trace is None:
        drew = not np.array_equal(state, Generator.get_state(default_generator()))
    else:
        drew = any(e.op.random and e.op.family != "custom" for e in trace.equations[start:])
    if drew:
        raise RuntimeError(
            f"{cls.__name__}.forward() draws random numbers, and a transform has to run it again "
            "for its derivative, where they would be others.\n"
            "  fix: draw outside, and pass the numbers to the function as an argument."
        )


def _with_history(
    ctx: FunctionCtx, results: Sequence[object], outs: Sequence[Tensor]
) -> list[Callable[[Any], Any] | None]:
    """What ``jvp`` finds in ``saved_tensors``: the tensors themselves, results as recorded."""
    recorded = dict(zip([id(r) for r in results if isinstance(r, Tensor)], outs, strict=True))
    chosen = ctx._to_save if ctx._for_forward is None else ctx._for_forward
    given = [None if t is None else recorded.get(id(t), t) for t in chosen]
    return [None if t is None else _always(t) for t in given]


def _always(tensor: Tensor) -> Callable[[Any], Tensor]:
    return lambda node: tensor


def _as_place(tensor: Tensor) -> Tensor:
    """The same tensor as a place of its own in the graph, connected to what came before."""
    if tensor.dtype.category < dtypes.FLOATING:
        return tensor
    if current_node(tensor) is None:
        return detached(in_trace(tensor)).requires_grad_()
    return view_as_is(tensor)


def _tensors_of(result: object) -> tuple[Tensor, ...]:
    results = result if isinstance(result, tuple) else (result,)
    return tuple(r for r in results if isinstance(r, Tensor))


def _along(
    given: Sequence[object], inputs: Sequence[object], values: Sequence[object]
) -> list[object]:
    """Values that belong to the tensors among the arguments, ``None`` for the others."""
    rest = iter(values)
    return [next(rest) if any(g is i for i in inputs) else None for g in given]


def _with_front_dims(out: object, out_dims: object) -> object:
    """Results with their batch dimension first; those without one repeated, if others have one."""
    outs = out if isinstance(out, tuple) else (out,)
    places = out_dims if isinstance(out_dims, tuple) else (out_dims,) * len(outs)
    sizes = [o._type.shape[d] for o, d in zip(outs, places, strict=True) if d is not None]
    if not sizes:
        return outs, None
    return tuple(
        expand(o, (sizes[0], *o._type.shape)) if d is None else movedim(o, d, 0)
        for o, d in zip(outs, places, strict=True)
    ), 0


def _batched_function(op: CustomOp, dims: Sequence[object]) -> type[Function]:
    """The custom function over a batch: its forward and backward under ``vmap``."""
    cls = op.cls

    def pull(*values: Tensor) -> tuple[Tensor, ...]:
        inputs, cotangents = values[: op.count], values[op.count :]
        with using(grad=True):
            watched = [
                detached(i).requires_grad_() if i.dtype.category >= dtypes.FLOATING else i
                for i in inputs
            ]
            with _drawing_nothing(cls):
                outs = _tensors_of(cls.apply(*op.build(watched)))
            live = [(o, c) for o, c in zip(outs, cotangents, strict=True) if o.requires_grad]
            wanted = [w for w in watched if w.requires_grad]
            return grad([o for o, _ in live], wanted, [c for _, c in live], materialize_grads=True)

    class Batched(Function):
        @staticmethod
        def forward(ctx: FunctionCtx, *inputs: Tensor) -> Any:
            ctx.save_for_backward(*inputs)
            needs = ctx.needs_input_grad

            def one(*inputs: Tensor) -> tuple[Tensor, ...]:
                given = op.build(inputs)
                inner = FunctionCtx()
                inner.needs_input_grad = tuple(map(bool, _along(given, inputs, needs)))
                with using(grad=False):
                    return _tensors_of(run_forward(cls, inner, given))

            return vmap(one, in_dims=tuple(dims), randomness=op.randomness)(*inputs)

        @staticmethod
        def backward(ctx: FunctionCtx, *cotangents: Tensor) -> Any:
            inputs = ctx.saved_tensors
            places = (*dims, *(0 for _ in cotangents))
            found = iter(vmap(pull, in_dims=places, randomness="same")(*inputs, *cotangents))
            grads: Leaves = []
            for value, dim in zip(inputs, dims, strict=True):
                if value.dtype.category < dtypes.FLOATING:
                    grads.append(None)
                    continue
                grad = next(found)
                if dim is None:
                    grads.append(grad.sum(0))
                else:
                    grads.append(grad if dim == 0 else grad.movedim(0, dim))
            return tuple(grads)

    Batched.__name__ = cls.__name__
    return Batched
