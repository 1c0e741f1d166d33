"""The builders of rows: five families, each deriving what its kind of op implies.

==============  =====================================================  =============================
family          the row states                                         derived
==============  =====================================================  =============================
elementwise     ``d[i](t, out, *args)``: the tangent through argument  vjp (summed over broadcast
                i, linear in ``t``                                     dimensions), jvp, vmap
linear          the transpose                                          jvp (the op itself)
bilinear        a transpose for each argument                          jvp (the op on each tangent)
reduction       ``d(t, out, x)``: elementwise weight of the tangent    vjp, jvp
opaque          the vjp (and the jvp, or it is the vjp's transpose)    --
==============  =====================================================  =============================

A formula is written in ops, so it can be differentiated again, traced, batched and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.dtypes import dtype
from evergrad.core.namespace import ops
from evergrad.core.op import NONDIFFERENTIABLE, ArgType, Op
from evergrad.core.row_facts import LEAST_DERIVATIVE, AutocastPolicy, Facts
from evergrad.core.shapes import Shape, TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Tensor

Formula = Callable[..., Any]


# -- element types ------------------------------------------------------------------------------


def result_dtype(types: Sequence[ArgType]) -> dtype:
    """Type promotion: tensors with dimensions decide, then 0-d tensors, then Python numbers; a
    lower rank counts only if its category is higher."""
    first = types[0]
    if isinstance(first, TensorType):
        for t in types:
            if t.__class__ is not TensorType or t.dtype is not first.dtype:
                break
        else:
            return first.dtype
    ranks: list[dtype | None] = [None, None, None]
    for t in types:
        if isinstance(t, TensorType):
            rank, found = (0 if t.shape else 1), t.dtype
        else:
            rank, found = 2, dtypes.scalar_type(t)
        held = ranks[rank]
        ranks[rank] = found if held is None else dtypes.promote_types(held, found)
    result: dtype | None = None
    for lower in ranks:
        if lower is None:
            continue
        result = lower if result is None else _combine(result, lower)
    assert result is not None
    return result


def _combine(higher: dtype, lower: dtype) -> dtype:
    if higher.category >= lower.category:
        return higher
    if higher.category == dtypes.FLOATING:
        return higher.to_complex()
    return dtypes.promote_types(higher, lower)


def meet(types: Sequence[ArgType]) -> dtype:
    """Promote arguments to their common type."""
    return result_dtype(types)


def meet_as_float(types: Sequence[ArgType]) -> dtype:
    """Promote arguments to their common type, integers to the default float."""
    found = result_dtype(types)
    return found if found.category >= dtypes.FLOATING else dtypes.get_default_dtype()


def meet_to_subtract(types: Sequence[ArgType]) -> dtype:
    """Promote arguments to their common type; none of them may be boolean."""
    kinds = [t.dtype if isinstance(t, TensorType) else dtypes.scalar_type(t) for t in types]
    if all(kind is dtypes.bool_ for kind in kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
            "`logical_xor()` operator instead."
        )
    if dtypes.bool_ in kinds:
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
            "trying to invert a mask, use the `~` or `logical_not()` operator instead."
        )
    return result_dtype(types)


def not_bool(found: dtype) -> bool:
    """For rows that compute with numbers."""
    return found is not dtypes.bool_


def not_complex(found: dtype) -> bool:
    """For rows that compare elements, or are defined on the real line."""
    return not found.is_complex


def real_number(found: dtype) -> bool:
    """For rows that compute with numbers of the real line."""
    return found is not dtypes.bool_ and not found.is_complex


# -- the families -------------------------------------------------------------------------------


def elementwise(
    name: str,
    function: Callable[..., object],
    d: Sequence[Formula | None] | Formula | str,
    *,
    promote: Callable[[Sequence[ArgType]], dtype] = meet,
    result: Callable[[dtype], dtype] | None = None,
    accepts: Callable[[dtype], bool] | None = None,
    takes_out: bool = True,
    upcast: bool = True,
    holomorphic: bool = True,
    doc: str = "",
    **facts: Unpack[Facts],
) -> Op:
    """An elementwise row, with broadcasting.

    ``d`` has one formula per argument (or one, for a single argument). ``takes_out`` says that
    ``function`` is a ufunc or accepts ``out=`` like one. ``holomorphic`` is false where the
    formula of a complex argument already is the vjp and jvp for real directions. ``facts`` are the
    further columns of :class:`~evergrad.core.op.Op`; the family keeps its precision under autocast.
    """
    formulas: tuple[Formula | None, ...]
    formulas = () if isinstance(d, str) else (d,) if callable(d) else tuple(d)

    def type_rule(*types: TensorType, **attrs: object) -> TensorType:
        found = types[0].dtype
        if accepts is not None and not accepts(found):
            raise NotImplementedError(f"\"{name}\" not implemented for '{found.name}'")
        shape = types[0].shape
        for t in types[1:]:
            if t.shape != shape:
                shape = broadcast_shapes(*(t.shape for t in types))
                break
        return tensor_type(shape, found if result is None else result(found))

    def pull(
        finish: Formula, g: Tensor, out: Tensor, *args: Tensor, **attrs: object
    ) -> tuple[Tensor | None, ...]:
        conj = _conj if holomorphic and args[0].dtype.is_complex else _same
        grads: list[Tensor | None] = []
        for formula, arg in zip(formulas, args, strict=True):
            if formula is None or arg.dtype.category < dtypes.FLOATING:
                grads.append(None)
            else:
                grad = finish(conj(formula(conj(g), out, *args, **attrs)), g)
                grads.append(ops.sum_to_type(grad, arg._type))
        return tuple(grads)

    def jvp(
        tangents: Sequence[Tensor | None], out: Tensor, *args: object, **attrs: object
    ) -> Tensor | None:
        total: Tensor | None = None
        for formula, t in zip(formulas, tangents, strict=True):
            if t is None or formula is None:
                continue
            part = formula(t, out, *args, **attrs)
            total = part if total is None else total + part
        if total is not None and total._type.shape != out._type.shape:
            total = ops.expand(total, out._type.shape)
        return total

    nothing = isinstance(d, str)
    facts.setdefault("autocast", AutocastPolicy.KEEP)
    facts.setdefault("eager_derivative", LEAST_DERIVATIVE)
    facts.setdefault("shape_generic", True)
    op = Op(
        name,
        family="elementwise",
        type=type_rule,
        eval=function,
        vjp=NONDIFFERENTIABLE if nothing else partial(pull, _same),
        jvp=None if nothing else jvp,
        batch=batch_elementwise,
        promote=promote,
        takes_out=takes_out,
        upcast=upcast,
        doc=doc,
        **facts,
    )
    if not nothing:
        op.nan_safe_vjp = partial(pull, _nan_safe)
    return op


def _nan_safe(grad: Tensor, g: Tensor) -> Tensor:
    """A zero where the cotangent is zero, also where the derivative is infinite or undefined."""
    return ops.where((g == 0) & ops.isnan(grad), 0, grad)  # type: ignore[no-any-return]


def _conj(t: Tensor) -> Tensor:
    return ops.conj(t) if isinstance(t, Tensor) else t


def _same(t: Tensor, g: Tensor | None = None) -> Tensor:
    return t


def linear(
    name: str,
    function: Callable[..., object],
    type: Callable[..., object],
    transpose: Formula,
    *,
    batch: Callable[..., object] | None = None,
    alias: str = "",
    arguments: Sequence[int] | None = None,
    promote: Callable[[Sequence[ArgType]], dtype | tuple[dtype, ...]] | None = None,
    takes_out: bool = False,
    upcast: bool = False,
    doc: str = "",
    **facts: Unpack[Facts],
) -> Op:
    """A row that is linear in the arguments at ``arguments`` (all of them if not given), jointly.

    ``transpose(g, *args, **attrs)`` gives one cotangent per argument (or just the one). It may use
    the types of the linear arguments, not their values. ``facts`` are the further columns.
    """

    def vjp(g: Tensor, out: Tensor, *args: object, **attrs: object) -> Any:
        return transpose(g, *args, **attrs)

    def jvp(tangents: Sequence[Tensor | None], out: Tensor, *args: Any, **attrs: object) -> object:
        linear_in = range(len(args)) if arguments is None else arguments
        if all(tangents[i] is None for i in linear_in):
            return None
        given = list(args)
        for i in linear_in:
            given[i] = _zeros_like(args[i]) if tangents[i] is None else tangents[i]
        return bind(op, *given, **attrs)

    op = Op(
        name, family="linear", type=type, eval=function, vjp=vjp, jvp=jvp, batch=batch, alias=alias,
        promote=promote, takes_out=takes_out, upcast=upcast, doc=doc, **facts,
    )  # fmt: skip
    return op


def _zeros_like(value: Tensor) -> Tensor:
    return ops.zeros_like(value) if isinstance(value, Tensor) else 0


def bilinear(
    name: str,
    function: Callable[..., object],
    type: Callable[..., object],
    transposes: Formula,
    *,
    batch: Callable[..., object] | None = None,
    promote: Callable[[Sequence[ArgType]], dtype] | None = None,
    takes_out: bool = False,
    doc: str = "",
    **facts: Unpack[Facts],
) -> Op:
    """A row that is linear in each of its two arguments.

    ``transposes(g, a, b, **attrs)`` gives the cotangents of both. ``facts`` are the further
    columns.
    """

    def vjp(g: Tensor, out: Tensor, a: Tensor, b: Tensor, **attrs: object) -> Any:
        return transposes(g, a, b, **attrs)

    def jvp(
        tangents: Sequence[Tensor | None], out: Tensor, a: Tensor, b: Tensor, **attrs: object
    ) -> object:
        ta, tb = tangents
        first = None if ta is None else bind(op, ta, b, **attrs)
        second = None if tb is None else bind(op, a, tb, **attrs)
        if first is None or second is None:
            return second if first is None else first
        return first + second

    op = Op(
        name, family="bilinear", type=type, eval=function, vjp=vjp, jvp=jvp, batch=batch,
        promote=promote, takes_out=takes_out, doc=doc, **facts,
    )  # fmt: skip
    return op


def reduction(
    name: str,
    function: Callable[..., object],
    type: Callable[..., object],
    d: Formula | str,
    *,
    batch: Callable[..., object] | None = None,
    takes_out: bool = False,
    doc: str = "",
    **facts: Unpack[Facts],
) -> Op:
    """A row that reduces the dimensions ``dims``: ``d(t, out, x, dims)`` weights a tangent
    elementwise, with ``out`` kept broadcastable, and the tangent of the result is their sum.
    ``facts`` are the further columns."""

    def kept(value: Tensor, x: Tensor, dims: Shape, keepdim: bool) -> Tensor:
        if keepdim:
            return value
        return ops.reshape(value, tuple(1 if i in dims else n for i, n in enumerate(x._type.shape)))

    def pull(
        finish: Formula, g: Tensor, out: Tensor, x: Tensor, *, dims: Shape, keepdim: bool
    ) -> Tensor:
        assert callable(d)
        conj = _conj if x.dtype.is_complex else _same
        g = kept(g, x, dims, keepdim)
        grad = finish(conj(d(conj(g), kept(out, x, dims, keepdim), x, dims)), g)
        return grad if grad._type.shape == x._type.shape else ops.expand(grad, x._type.shape)

    def jvp(
        tangents: Sequence[Tensor], out: Tensor, x: Tensor, *, dims: Shape, keepdim: bool
    ) -> Tensor:
        assert callable(d)
        weighed = d(tangents[0], kept(out, x, dims, keepdim), x, dims)
        return ops.sum(weighed, dims, keepdim) if dims else weighed

    nothing = isinstance(d, str)
    facts.setdefault("eager_derivative", LEAST_DERIVATIVE)
    facts.setdefault("shape_generic", True)
    op = Op(
        name, family="reduction", type=type, eval=function,
        vjp=NONDIFFERENTIABLE if nothing else partial(pull, _same), jvp=None if nothing else jvp,
        batch=batch, takes_out=takes_out, doc=doc,
        **facts,
    )  # fmt: skip
    if not nothing:
        op.nan_safe_vjp = partial(pull, _nan_safe)
    return op


def opaque(
    name: str,
    function: Callable[..., object],
    type: Callable[..., object],
    vjp: Formula | str,
    *,
    jvp: Formula | None = None,
    batch: Callable[..., object] | None = None,
    promote: Callable[[Sequence[ArgType]], dtype | tuple[dtype, ...]] | None = None,
    outputs: int = 1,
    random: bool = False,
    takes_out: bool = False,
    upcast: bool = True,
    doc: str = "",
    **facts: Unpack[Facts],
) -> Op:
    """A row of no family: ``vjp(g, out, *args, **attrs)`` gives a cotangent per argument.

    Without ``jvp``, forward mode transposes the vjp. With several outputs ``g`` and ``out`` are
    tuples. ``facts`` are the further columns.
    """
    return Op(
        name, family="opaque", type=type, eval=function, vjp=vjp, jvp=jvp, batch=batch,
        promote=promote, outputs=outputs, random=random, takes_out=takes_out, upcast=upcast,
        doc=doc, **facts,
    )  # fmt: skip


# -- batching -----------------------------------------------------------------------------------


def batch_elementwise(
    op: Op, args: Sequence[object], dims: Sequence[int | None], **attrs: object
) -> tuple[Tensor, int]:
    """Put every batch dimension first, with singleton dimensions behind it up to a common rank."""
    rank = 0
    for arg, dim in zip(args, dims, strict=True):
        if isinstance(arg, Tensor):
            rank = max(rank, arg.ndim - (dim is not None))
    aligned = []
    for arg, dim in zip(args, dims, strict=True):
        if dim is not None:
            moved: Any = arg if dim == 0 else ops.movedim(arg, dim, 0)
            shape = moved._type.shape
            missing = rank - (len(shape) - 1)
            if missing:
                moved = ops.reshape(moved, (shape[0],) + (1,) * missing + shape[1:])
            arg = moved
        aligned.append(arg)
    return bind(op, *aligned, **attrs), 0
