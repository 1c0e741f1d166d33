"""Passes from graph to graph: results stay the same, equations become simpler.

:func:`rewrite` copies a graph equation by equation into a new trace (which finds equal equations
and keeps one), and lets :data:`RULES` say some of them differently: in more elementary ops, or not
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from evergrad.compiler.passes.attention.match import recognise
from evergrad.compiler.passes.batch_accumulations import gather_sums
from evergrad.compiler.passes.cat_layout import join_in_order
from evergrad.compiler.passes.composites import lower_composites
from evergrad.compiler.passes.conv_epilogue import join_followers
from evergrad.compiler.passes.group_norm_planes import by_planes
from evergrad.compiler.passes.lower_random import draw_lean
from evergrad.compiler.passes.pool_gradient import join_pool_gradients
from evergrad.compiler.passes.reuse_reductions import spare_sums
from evergrad.compiler.passes.rewriter import copied
from evergrad.core import dtypes
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.pool.geometry import Windows

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def simplify(graph: Graph) -> tuple[Graph, list[Tensor]]:
    """All passes; gives the graph, with the tensors of its further inputs."""
    known = recognise(lower_composites(draw_lean(graph)))
    simple, tensors = fold(join_in_order(gather_sums(rewrite(known))))
    return spare_sums(by_planes(join_followers(join_pool_gradients(simple)))), tensors


def rewrite(graph: Graph) -> Graph:
    """The graph in the words the compiler knows best, without dead code."""
    slices, ones = _Slices(), _ones(graph)

    def replace(trace: Trace, eqn: Equation, args: tuple[Any, ...], env: Any) -> Any:
        if eqn.op.name == "mul" and not ones.isdisjoint(eqn.args):
            factor = args[eqn.args[0] in ones]
            same = isinstance(factor, Var) and factor.type.same(eqn.outs[0].type)
            if same and factor.layout.flags.c_contiguous:
                return (factor,)
        return _said_differently(eqn, args) or slices.joined(trace, eqn, args)

    return copied(graph, replace)


def _ones(graph: Graph) -> set[Any]:
    """The values that hold nothing but ones, such as the cotangent of a sum."""
    found: set[Any] = set()
    for eqn in graph.equations:
        same = eqn.op.alias and eqn.args[0] in found
        if same or (eqn.op.name == "full" and eqn.args[0] == 1):
            found.update(eqn.outs)
    return found


def _said_differently(eqn: Equation, args: tuple[Any, ...]) -> Sequence[Any] | None:
    rule = RULES.get(eqn.op.name)
    if rule is None:
        return None
    given = [fresh(a, a.type) if isinstance(a, Var) else a for a in args]
    found = rule(*given, **eqn.attrs)
    if found is None:
        return None
    value = found._value
    return (value,) if isinstance(value, Var) and value.type.same(eqn.outs[0].type) else None


class _Slices:
    """Notices sums of parts, each laid into zeros at its own place, that together fill the whole:
    what the derivative of ``split`` is. They become one ``cat``."""

    def __init__(self) -> None:
        self.parts: dict[Var, list[tuple[Any, Var]]] = {}

    def joined(self, trace: Trace, eqn: Equation, args: tuple[Any, ...]) -> Sequence[Var] | None:
        if eqn.op.name == "pad_slice":
            part = trace.emit(eqn.specialization, args, eqn.location)
            places = _spelled_out(eqn.attrs["slices"], part[0].type.shape)
            self.parts[part[0]] = [(places, args[0])]
            return part
        if eqn.op.name != "add" or not all(isinstance(a, Var) and a in self.parts for a in args):
            return None
        shape = eqn.outs[0].type.shape
        if any(a.type.shape != shape for a in args):
            return None
        parts = self.parts[args[0]] + self.parts[args[1]]
        dim = _dim_of_parts([slices for slices, _ in parts], shape)
        if dim is None:
            return None
        parts.sort(key=lambda part: part[0][dim][0])
        ends = [0, *(slices[dim][1] for slices, _ in parts)]
        if any(slices[dim][0] < end for (slices, _), end in zip(parts, ends, strict=False)):
            return None
        if sum(s[dim][1] - s[dim][0] for s, _ in parts) < shape[dim]:
            outs: Sequence[Var] = trace.emit(eqn.specialization, args, eqn.location)
            self.parts[outs[0]] = parts
            return outs
        from evergrad.ops.rows.movement.joining import cat
        from evergrad.ops.rows.movement.views import reshape

        pieces = [
            reshape(fresh(v, v.type), tuple(end - start for start, end, _ in slices))
            for slices, v in parts
        ]
        return (cat(pieces, dim)._value,)


def _spelled_out(slices: Any, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(start, end, step) for every dimension; a single place is a slice of length one."""
    spelled = [(s, s + 1, 1) if isinstance(s, int) else s for s in slices]
    return spelled + [(0, extent, 1) for extent in shape[len(spelled) :]]


def _dim_of_parts(all_slices: Sequence[Any], shape: tuple[int, ...]) -> int | None:
    """The one dimension along which parts take less than everything."""
    dims = set()
    for slices in all_slices:
        if any(step != 1 for _, _, step in slices):
            return None
        dims |= {d for d, s in enumerate(slices) if (s[0], s[1]) != (0, shape[d])}
    return dims.pop() if len(dims) == 1 else None


def says(name: str) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        RULES[name] = rule
        return rule

    return enter


@says("detach")
def _detach(x: Tensor) -> Tensor:
    return x


@says("clone")
def _clone(x: Tensor) -> Tensor | None:
    """A copy of what lies in order is as good as the thing itself: values are never overwritten."""
    return x if x.layout_array().flags.c_contiguous else None


@says("reshape")
def _reshape(x: Tensor, shape: tuple[int, ...]) -> Any:
    """Copied first if it is no view of a value that lies otherwise than when it was traced."""
    from evergrad.core.bind import bind
    from evergrad.core.op import TABLE

    try:
        np.reshape(x.layout_array(), shape, copy=False)
    except ValueError:
        return bind(TABLE["reshape"], bind(TABLE["clone"], x), shape=shape)
    return None


@says("update")
def _update(base: Tensor, value: Tensor, chain: Any) -> Tensor | None:
    """Nothing of a base is left if all of it is replaced, through views that turn or reshape it."""
    from evergrad.ops.rows.movement.views import permute, reshape

    shapes = [base._type.shape]
    for op, attrs in chain.ops:
        if op.name not in ("permute", "reshape"):
            return None
        shapes.append(op.type(tensor_type(shapes[-1], base.dtype), **attrs).shape)
    if value._type.shape != shapes.pop():
        return None
    for op, attrs in reversed(chain.ops):
        before = shapes.pop()
        if op.name == "permute":
            value = permute(value, [attrs["order"].index(d) for d in range(len(before))])
        else:
            value = reshape(value, before)
    return value


@says("cast")
def _cast(x: Tensor, dtype: Any) -> Tensor | None:
    return x if x.dtype is dtype else None


@says("sum")
def _sum(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor | None:
    """Along dimensions of one element each there is nothing to add."""
    from evergrad.core.shapes import reduced_shape
    from evergrad.ops.rows.movement.views import reshape

    if any(x.shape[d] != 1 for d in dims):
        return None
    return reshape(x, reduced_shape(x._type.shape, dims, keepdim))


@says("mean")
def _mean(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Any:
    from evergrad.ops.rows.reduce.sums import sum as total

    if x.dtype not in (dtypes.float32, dtypes.float64):
        return None
    count = 1
    for d in dims:
        count *= x.shape[d]
    return total(x, dims, keepdim) / count if dims else x


@says("softmax")
def _softmax(x: Tensor, dim: int) -> Any:
    from evergrad.ops.rows.elementwise.basic import exp
    from evergrad.ops.rows.reduce.extrema import amax
    from evergrad.ops.rows.reduce.sums import sum as total

    if x.dtype not in (dtypes.float32, dtypes.float64) or not x.ndim or not x.numel():
        return None
    grown = exp(x - amax(x, dim, True))
    return grown / total(grown, dim, True)


@says("log_softmax")
def _log_softmax(x: Tensor, dim: int) -> Any:
    from evergrad.ops.rows.elementwise.basic import exp, log
    from evergrad.ops.rows.reduce.extrema import amax
    from evergrad.ops.rows.reduce.sums import sum as total

    if x.dtype not in (dtypes.float32, dtypes.float64) or not x.ndim or not x.numel():
        return None
    moved = x - amax(x, dim, True)
    return moved - log(total(exp(moved), dim, True))


@says("pow")
def _pow(x: Any, exponent: Any) -> Any:
    from evergrad.ops.rows.elementwise.basic import sqrt

    if not isinstance(x, Tensor) or isinstance(exponent, Tensor) or not x.is_floating_point():
        return None
    if exponent == 2:
        return x * x
    return sqrt(x) if exponent == 0.5 else None


@says("mul")
def _mul(a: Any, b: Any) -> Any:
    if isinstance(a, Tensor) and not isinstance(b, Tensor) and b == 1:
        return a
    return b if isinstance(b, Tensor) and not isinstance(a, Tensor) and a == 1 else None


_SIXTEEN_BITS = (dtypes.bfloat16, dtypes.float16)


def _with_copies(name: str) -> Rule:
    """Lay factors out anew that BLAS cannot take as they lie; 16-bit ones meet as float32."""

    def rule(a: Tensor, b: Tensor) -> Any:
        from evergrad.compiler.kernels.gemm.select import needs_copy
        from evergrad.core.bind import bind, cast
        from evergrad.core.op import TABLE

        if a.dtype in _SIXTEEN_BITS and a.numel() and b.numel():
            wide = [cast(x, dtypes.float32) for x in (a, b)]
            return cast(bind(TABLE[name], *wide), a.dtype)
        if not (needs_copy(a._value) or needs_copy(b._value)):
            return None
        laid = [bind(TABLE["clone"], x) if needs_copy(x._value) else x for x in (a, b)]
        return bind(TABLE[name], *laid)

    return rule


for _name in ("matmul", "linear"):
    RULES[_name] = _with_copies(_name)


# From so many pixels on, if the products of all samples have no more bytes than this.
_MANY_PIXELS = 512
_PRODUCTS_LIMIT = 16 << 20


@says("conv_weight")
def _conv_weight(y: Tensor, x: Tensor, *, windows: Windows, groups: int) -> Tensor | None:
    """Kernels of one element and large images: a product for each sample, added up."""
    (samples, outputs), channels, pixels = y.shape[:2], x.shape[1], prod(windows.counts)
    nbytes = samples * outputs * channels * y.dtype.itemsize
    if not windows.is_pointwise or groups > 1 or pixels < _MANY_PIXELS:
        return None
    if nbytes > _PRODUCTS_LIMIT or y.dtype not in (dtypes.float32, dtypes.float64):
        return None
    rows = y.reshape(samples, outputs, pixels)
    columns = x.reshape(samples, channels, pixels).transpose(1, 2)
    gradient: Tensor = (rows @ columns).sum(0).reshape(outputs, channels, *windows.kernel)
    return gradient


_FOLD_LIMIT = 1 << 20


def fold(graph: Graph) -> tuple[Graph, list[Tensor]]:
    """Compute once what depends on nothing; gives the graph with these values as further inputs."""
    known: dict[Var, Any] = {}
    kept: list[Equation] = []
    for eqn in graph.equations:
        ready = all(not isinstance(a, Var) or a in known for a in eqn.args)
        small = all(out.type.numel <= _FOLD_LIMIT for out in eqn.outs)
        plain = eqn.op.outputs == 1 and not eqn.op.random and hasattr(eqn.specialization, "run")
        if ready and small and plain:
            args = [known[a] if isinstance(a, Var) else a for a in eqn.args]
            known[eqn.outs[0]] = np.asarray(
                eqn.specialization.run(*args), eqn.outs[0].type.dtype.np
            )
        else:
            kept.append(eqn)
    used = {a for eqn in kept for a in eqn.args if isinstance(a, Var)}
    used |= {o for o in graph.outputs if isinstance(o, Var)}
    constants: list[Tensor] = []
    literals: list[Equation] = []
    inputs = list(graph.inputs)
    folded = {eqn.outs[0]: eqn for eqn in graph.equations if eqn.outs[0] in known}
    for var, value in known.items():
        if var not in used:
            continue
        if folded[var].op.name == "full":
            literals.append(folded[var])
            continue
        array = value if value.flags.c_contiguous else value.copy()
        constants.append(fresh(array, var.type))
        inputs.append(var)
        var._layout = array
    for eqn in kept:
        if eqn.op.alias:  # it may look at a value that lies elsewhere now
            eqn.outs[0]._layout = eqn.op.eval(eqn.args[0].layout, **eqn.attrs)
    return Graph(inputs, (), [*literals, *kept], graph.outputs), constants
