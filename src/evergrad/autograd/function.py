"""Custom functions: a forward and a backward written by the user.

A call is one node. While tracing it is also one equation
(:mod:`evergrad.autograd.custom_op`).
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.compound import Compound, as_cotangent
from evergrad.core.inplace import check_writable, record_write
from evergrad.core.node import GraphNode, next_sequence
from evergrad.core.recording import pack, unpack, unpacked_handle
from evergrad.core.saved_values import Packed, freed_error, save_value, verify
from evergrad.core.shapes import TensorType, broadcast_shapes
from evergrad.core.source_location import SourceLocation, user_location
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor, current_node, detached, fresh, from_array, on_storage
from evergrad.core.trace import Var
from evergrad.core.tracing import owner_of, trace_value
from evergrad.core.views import View
from evergrad.errors import GradientError, ShapeError
from evergrad.extension import ExtensionPoint
from evergrad.ops.rows.creation.constants import zeros
from evergrad.ops.rows.movement.views import sum_to_type

if TYPE_CHECKING:
    from evergrad.core.types import Args, Leaves, Tree

_as_equation: ExtensionPoint[..., Any] = ExtensionPoint("function_equation")


class FunctionCtx:
    """What ``forward`` hands to ``backward``. Any attribute may be set on it.

    ``save_for_backward(*tensors)`` keeps tensors, ``saved_tensors`` gives them back,
    ``needs_input_grad`` says which inputs need a gradient, ``mark_dirty`` and
    ``mark_non_differentiable`` tell about results.

    >>> class Scale(eg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, factor):
    ...         ctx.factor = factor
    ...         return x * factor
    ...
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad * ctx.factor, None
    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> Scale.apply(x, 3).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """

    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self._to_save: tuple[Any, ...] = ()
        self._for_forward: tuple[Any, ...] | None = None
        self._saved: Leaves | None = []
        self._dirty: tuple[Tensor, ...] = ()
        self._without_grad: tuple[Tensor, ...] = ()
        self._materialize = True
        # Gives the node. It holds this object, so it is known only weakly here.
        self._node: Callable[[], Any] = lambda: None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for ``backward``, which finds them in ``ctx.saved_tensors``."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise TypeError(
                    f"save_for_backward can only save tensors, but argument is of type "
                    f"{type(tensor).__name__}; set it as an attribute of ctx instead"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for ``jvp``, which finds them in ``ctx.saved_tensors``."""
        self._for_forward = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs were modified in place. They must be returned as outputs."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no derivative."""
        self._without_grad = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether missing cotangents arrive in ``backward`` as zeros (the default) or ``None``."""
        self._materialize = value

    if TYPE_CHECKING:  # a context takes attributes of any name

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: object) -> None: ...

    @property
    def saved_tensors(self) -> Args:
        """The tensors given to ``save_for_backward``."""
        node = self._node()
        if node is None:
            raise GradientError(
                "saved_tensors was asked for after the graph that it belongs to is gone"
            )
        if self._saved is None:
            raise freed_error(node)
        return tuple(None if entry is None else entry(node) for entry in self._saved)


class FunctionNode(GraphNode):
    """The node of one call of a custom function."""

    __slots__ = ("cls", "ctx", "in_types", "indices", "location", "parents", "types")

    def __init__(
        self, cls: type[Function], ctx: FunctionCtx | None, args: Sequence[object]
    ) -> None:
        self.seq: int = next_sequence()
        self.hooks = None
        self.cls: type[Function] = cls
        self.ctx: FunctionCtx | None = ctx
        self.parents: tuple[GraphNode | None, ...] = tuple(
            current_node(a) if isinstance(a, Tensor) else None for a in args
        )
        self.indices: tuple[int, ...] = tuple(
            a._index if isinstance(a, Tensor) else 0 for a in args
        )
        self.in_types: tuple[TensorType | None, ...] = tuple(
            a._type if isinstance(a, Tensor) else None for a in args
        )
        # One for each result, None for what is no tensor.
        self.types: tuple[TensorType | None, ...] = ()
        self.location: SourceLocation | None = user_location(2)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        result: float | list[bool] = getattr(object.__getattribute__(self, "ctx"), name)
        return result

    def name(self) -> str:
        return f"{self.cls.__name__}Backward"

    def out_types(self) -> tuple[TensorType | None, ...]:
        return self.types

    @property
    def next_functions(self) -> tuple[tuple[GraphNode | None, int], ...]:
        return tuple(zip(self.parents, self.indices, strict=True))

    def run(self, values: Leaves, on_tensors: bool, keep_graph: bool) -> Leaves:
        """Call the user's backward with cotangents, and check what it returns."""
        assert self.ctx is not None
        given: Leaves = []
        for value, type in zip(values, self.types, strict=True):
            if value is None and type is not None and self.ctx._materialize:
                given.append(zeros(type.shape, dtype=type.dtype))
            elif value is None or isinstance(value, Tensor):
                given.append(value)
            else:
                given.append(from_array(value))
        pull = self.cls.backward if self.cls.vjp is Function.vjp else self.cls.vjp
        found = pull(self.ctx, *given)
        if not keep_graph:
            self.ctx._saved = None
        grads = self._checked(found)
        if on_tensors:
            return grads
        return [None if g is None else as_cotangent(g) for g in grads]

    def _checked(self, found: object) -> Leaves:
        grads = list(found) if isinstance(found, (tuple, list)) else [found]
        while len(grads) > len(self.parents) and grads[-1] is None:
            grads.pop()
        if len(grads) != len(self.parents):
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected "
                f"{len(self.parents)}, got {len(grads)})"
            )
        for i, (grad, parent) in enumerate(zip(grads, self.parents, strict=True)):
            if parent is None:
                grads[i] = None
            elif grad is not None:
                grads[i] = self._fitting(i, grad)
        return grads

    def _fitting(self, i: int, grad: object) -> Tensor:
        type = self.in_types[i]
        assert type is not None
        if not isinstance(grad, Tensor):
            raise RuntimeError(
                f"function {self.name()}: expected a Tensor or None as gradient {i}, got "
                f"{builtin_type(grad).__name__}"
            )
        if grad._type.shape != type.shape:
            try:
                fits = broadcast_shapes(grad._type.shape, type.shape) == grad._type.shape
            except ShapeError:
                fits = False
            if not fits:
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got "
                    f"{list(grad._type.shape)} but expected shape compatible with "
                    f"{list(type.shape)}"
                )
            grad = sum_to_type(grad, type)
        return cast(grad, type.dtype)


builtin_type = type


class Function:
    """Subclass it with static ``forward`` and ``backward`` (and ``jvp``, ``vmap``), then call
    ``apply``.

    >>> class Square(eg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * grad
    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> Square.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    generate_vmap_rule = False

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom Function.")

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: Tree, output: Tree) -> None:
        """Store on ``ctx`` what backward needs, where ``forward`` takes no ``ctx``."""
        raise NotImplementedError("setup_context is not implemented.")

    if TYPE_CHECKING:  # methods that override these have parameters of their own

        @staticmethod
        def backward(ctx: FunctionCtx, *args: Any, **kwargs: Any) -> Any: ...
        @staticmethod
        def jvp(ctx: FunctionCtx, *args: Any, **kwargs: Any) -> Any: ...
        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any, **kwargs: Any) -> Any: ...
        @staticmethod
        def vjp(ctx: FunctionCtx, *args: Any, **kwargs: Any) -> Any: ...
    else:

        @staticmethod
        def backward(ctx, *grad_outputs):
            """The cotangents of the inputs, from those of the results; ``vjp`` is another name."""
            raise NotImplementedError(
                "You must implement the backward function of a custom Function."
            )

        vjp = backward

        @staticmethod
        def jvp(ctx, *grad_inputs):
            """The tangents of the results, from those of the inputs."""
            raise NotImplementedError("You must implement the jvp function for custom Function.")

        @staticmethod
        def vmap(info, in_dims, *args):
            """The results of a batch: ``info``, the batch dimensions of the inputs, the inputs."""
            raise NotImplementedError("You must implement the vmap function for custom Function.")

    @classmethod
    def apply(cls, *args: object, **kwargs: object) -> Any:
        """Call the function and record it as one node."""
        state = STATE.get()
        args = _all_arguments(cls, args, kwargs)
        ctx = FunctionCtx()
        wanted = tuple(isinstance(a, Tensor) and current_node(a) is not None for a in args)
        ctx.needs_input_grad = wanted
        recording = state.grad and any(wanted)
        node = FunctionNode(cls, ctx, args) if recording else None
        with using(grad=False):
            result = run_forward(cls, ctx, args)
        results = result if isinstance(result, tuple) else (result,)
        outputs = [_as_output(ctx, r, args) for r in results]
        trace = None
        if state.trace is not None and not ctx._dirty:
            trace = owner_of(state.trace, None, args)
        if trace is not None:
            outputs = _as_equation(cls, trace, args, outputs)
        if node is not None:
            _connect(node, ctx, args, results, outputs)
        else:
            ctx._node = unrecorded(cls)
            _save(ctx, args, results, outputs)
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def _all_arguments(
    cls: type[Function], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[object, ...]:
    """The arguments by position, with the defaults of a ``forward`` that has no context."""
    with_context = cls.setup_context is Function.setup_context
    code = getattr(cls.forward, "__code__", None)
    if not kwargs and (with_context or (code is not None and code.co_argcount <= len(args))):
        return args
    context = (None,) if with_context else ()
    bound = inspect.signature(cls.forward).bind(*context, *args, **kwargs)
    if not with_context:
        bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(
            f"{cls.__name__}.forward() has arguments that can only be given by keyword "
            f"({', '.join(bound.kwargs)}); each needs a place, for its gradient"
        )
    return bound.args[len(context) :]


def run_forward(cls: type[Function], ctx: FunctionCtx, args: Any) -> Any:
    """Call the user's forward in either of its two forms."""
    if cls.setup_context is Function.setup_context:
        return cls.forward(ctx, *args)
    output = cls.forward(*args)
    cls.setup_context(ctx, args, output)
    return output


def unrecorded(cls: type[Function]) -> Callable[[], FunctionNode]:
    """Stands for the node of a call that no graph knows."""
    node = FunctionNode(cls, None, ())
    return lambda: node


def _as_output(ctx: FunctionCtx, value: object, args: Sequence[object]) -> object:
    """A result as a handle of its own; an input returned unchanged becomes another view of it."""
    if not isinstance(value, Tensor) or any(value is d for d in ctx._dirty):
        return value
    if not any(value is a for a in args):
        return value
    output = detached(value)
    if output._view is None:
        output._view = View(None, (), value._storage.version)
    # A write to it would go past the function's derivative, so it is refused.
    output._view.from_no_grad = value
    return output


def _differentiable(ctx: FunctionCtx, value: object) -> bool:
    return (
        isinstance(value, Tensor)
        and value.dtype.category >= dtypes.FLOATING
        and not any(value is t for t in ctx._without_grad)
    )


def _connect(
    node: FunctionNode, ctx: FunctionCtx, args: object, results: Tree, outputs: Leaves
) -> None:
    """Make the node the history of the results that have a derivative."""
    ctx._node = weakref.ref(node)
    node.types = tuple(o._type if isinstance(o, Tensor) else None for o in outputs)
    for dirty in ctx._dirty:
        check_writable(STATE.get(), dirty, None)
        dirty._storage.version += 1
        dirty._storage.writer = node.location
    _save(ctx, args, results, outputs)
    for place, (result, output) in enumerate(zip(results, outputs, strict=True)):
        if not _differentiable(ctx, result):
            continue
        if any(output is d for d in ctx._dirty):
            value = on_storage(output._value, output._type, output._storage, None)
            value._node, value._index = node, place
            record_write(STATE.get(), output, value, fresh=True)
        else:
            output._node, output._index = node, place


def _save(ctx: FunctionCtx, args: Any, results: Tree, outputs: list[object]) -> None:
    """Turn what was given to ``save_for_backward`` into entries that close no cycle."""
    entries: Leaves = []
    for tensor in ctx._to_save:
        if tensor is None:
            entries.append(None)
            continue
        source, index, handle = "own", 0, tensor
        if not any(tensor is d for d in ctx._dirty):
            for i, arg in enumerate(args):
                if arg is tensor:
                    source, index = "input", i
        for j, result in enumerate(results):
            if result is tensor and source == "own":
                source, index, handle = "output", j, outputs[j]
        entries.append(_entry(handle, source, index))
    ctx._saved = entries
    ctx._to_save = ()


def _placed(handle: Tensor, node: Any, source: str, index: int) -> Tensor:
    """A handle on a saved value, at the place in the graph that the value had."""
    if source == "input" and node.parents:
        handle._node, handle._index = node.parents[index], node.indices[index]
    elif source == "output" and node.types:
        handle._node, handle._index = node, index
    return handle


def _entry_of_compound(tensor: Compound, source: str, index: int) -> Callable[[Any], Tensor]:
    """A sparse or nested tensor has no array: it is kept whole, and its parts are verified."""
    kept: Any = tensor.detach()
    saved = [save_value(part._value, part._storage) for part in kept.parts()]

    def restore(node: Any) -> Tensor:
        for entry in saved:
            verify(node, entry)
        return _placed(kept.detach(), node, source, index)

    return restore


def _entry(tensor: Tensor, source: str, index: int) -> Callable[[Any], Tensor]:
    if isinstance(tensor, Compound):
        return _entry_of_compound(tensor, source, index)
    state = STATE.get()
    type = tensor._type
    saved: Any
    if state.saved_hooks is not None:
        saved = pack(state, tensor, source == "output")
    else:
        value = tensor._value
        if state.trace is not None and isinstance(tensor._storage.value, Var):
            value = trace_value(tensor._storage.value.trace, tensor)
        saved = save_value(value, tensor._storage)
    # A handle of its own for a symbolic value, which its trace may compute later.
    symbolic = (
        fresh(saved[0], type) if state.saved_hooks is None and isinstance(value, Var) else None
    )

    def restore(node: Any) -> Tensor:
        if saved.__class__ is Packed:
            handle = unpacked_handle(unpack(saved, node), type)
        else:
            verify(node, saved)
            value, storage = saved[0], saved[1]
            if symbolic is not None:
                handle = on_storage(symbolic._value, type, symbolic._storage, None)
            else:
                handle = on_storage(value, type, storage, None)
        return _placed(handle, node, source, index)

    return restore


def once_differentiable(function: Callable[..., object]) -> Callable[..., Any]:
    """For a ``backward`` that is not itself differentiable: its second use is an error.

    >>> class Square(eg.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...
    ...     @staticmethod
    ...     @eg.autograd.function.once_differentiable
    ...     def backward(ctx, grad):
    ...         return 2 * ctx.saved_tensors[0] * grad
    >>> x = eg.tensor([1.0, 2.0], requires_grad=True)
    >>> Square.apply(x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    @functools.wraps(function)
    def wrapper(ctx: FunctionCtx, *args: object) -> object:
        with using(grad=False):
            outputs = function(ctx, *args)
        if not STATE.get().grad:
            return outputs
        tied = outputs if isinstance(outputs, tuple) else (outputs,)
        needs = any(isinstance(a, Tensor) and a.requires_grad for a in args) or any(
            isinstance(s, Tensor) and s.requires_grad for s in ctx.saved_tensors
        )
        if needs:
            behind = [t for t in (*args, *ctx.saved_tensors) if isinstance(t, Tensor)]
            tied = tuple(_undifferentiable(o, behind) if isinstance(o, Tensor) else o for o in tied)
        return tied if isinstance(outputs, tuple) else tied[0]

    return wrapper


class _Refusal(GraphNode):
    """Stands where a derivative would be wrong."""

    __slots__ = ("indices", "location", "parents", "types")

    def __init__(self, type: TensorType, behind: Sequence[Tensor]) -> None:
        self.seq = next_sequence()
        self.hooks = None
        self.parents = tuple(current_node(t) for t in behind)
        self.indices = tuple(t._index for t in behind)
        self.types = (type,)
        self.location = user_location(3)

    def name(self) -> str:
        return "OnceDifferentiableBackward"

    def out_types(self) -> tuple[TensorType, ...]:
        return self.types

    def run(self, values: list[object], on_tensors: bool, keep_graph: bool) -> Leaves:
        raise GradientError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def _undifferentiable(tensor: Tensor, behind: Sequence[Tensor]) -> Tensor:
    handle = detached(tensor)
    handle._node = _Refusal(handle._type, behind)
    return handle
