"""Complex arithmetic as equations of real and imaginary parts, which loops and products cover.

Each complex value that a rule computes is a pair of real ones; joined in memory it is only what an
equation without a rule (a Fourier transform), a result or a view needs. The parts of other complex
values are views. Formulas are those of NumPy, so that infinities and NaN come out alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.compiler.passes.rewriter import layout_of, rewrite
from evergrad.core.bind import bind, cast
from evergrad.core.op import TABLE, Op
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.core.views import ViewChain
from evergrad.ops.rows.creation.assemble import COMPLEX
from evergrad.ops.rows.creation.constants import FULL, full
from evergrad.ops.rows.elementwise.basic import (
    ADD,
    CAST,
    CLONE,
    DIV,
    MUL,
    SUB,
    WHERE,
    exp,
    where,
)
from evergrad.ops.rows.elementwise.logic import isnan
from evergrad.ops.rows.elementwise.magnitude import ABS_COMPLEX, CONJ, SGN
from evergrad.ops.rows.elementwise.trigonometry import cos, hypot, sin
from evergrad.ops.rows.indexing.index import INDEX, INDEX_ADD, INDEX_COPY, INDEX_SUM
from evergrad.ops.rows.matmul import LINEAR, MATMUL
from evergrad.ops.rows.movement.complex_parts import IMAG, REAL, VIEW_AS_COMPLEX, VIEW_AS_REAL
from evergrad.ops.rows.movement.joining import CAT, cat
from evergrad.ops.rows.movement.rearrange import FLIP, ROLL
from evergrad.ops.rows.movement.slices import PAD_SLICE
from evergrad.ops.rows.movement.strided import FOLD
from evergrad.ops.rows.movement.views import RESHAPE, expand, reshape, transpose, unsqueeze
from evergrad.ops.rows.reduce.sums import MEAN, SUM
from evergrad.ops.surface.view_forms import UPDATE

if TYPE_CHECKING:
    from evergrad.compiler.passes.rewriter import Environment
    from evergrad.core.types import AnyFunction


class _Pair(NamedTuple):
    """The real and the imaginary part: tensors or numbers."""

    re: Any
    im: Any


def split_complex(graph: Graph) -> Graph:
    """The graph with arithmetic of complex numbers in parts."""
    if not any(_is_complex(out) for eqn in graph.equations for out in eqn.outs):
        return graph
    return rewrite(graph, _Splitter().replace)


def _is_complex(value: Var) -> bool:
    return isinstance(value, Var) and value.type.dtype.is_complex


class _Splitter:
    """Replaces equations; ``pairs`` are the values known in parts."""

    def __init__(self) -> None:
        self.pairs: dict[Var, _Pair] = {}

    def replace(self, trace: Trace, eqn: Equation, args: Args, env: Environment) -> Any:
        values = (*args, *eqn.outs)
        if not any(_is_complex(v) for v in values) or len(eqn.outs) != 1:
            return None
        if any(isinstance(v, Var) and not v.type.numel for v in values):
            return None
        rule = RULES.get(eqn.op)
        if rule is None:
            return self.moved(trace, eqn, args) if eqn.op.alias else None
        found = rule(*map(self.operand, args), **eqn.attrs)
        if found is None:
            return None
        return (self.joined(found, eqn.outs[0]) if isinstance(found, _Pair) else found._value,)

    def operand(self, value: object) -> Any:
        """A pair for what is complex; tensors and numbers otherwise."""
        if isinstance(value, complex) and value.imag:
            return _Pair(value.real, value.imag)
        if isinstance(value, complex):
            return value.real
        if not isinstance(value, Var):
            return value
        tensor = fresh(value, value.type)
        if not _is_complex(value):
            return tensor
        return self.pairs.get(value) or _Pair(bind(REAL, tensor), bind(IMAG, tensor))

    def joined(self, pair: _Pair, out: Var) -> Var:
        """A pair in memory, as a value of the result's type."""
        kind, shape = out.type.dtype.to_real(), out.type.shape
        whole = _Pair(*(_whole(part, shape, kind) for part in pair))
        value: Var = bind(
            VIEW_AS_COMPLEX, cat([unsqueeze(part, len(shape)) for part in whole], len(shape))
        )._value
        assert value.type.same(out.type)
        self.pairs[value] = whole
        return value

    def moved(self, trace: Trace, eqn: Equation, args: Args) -> object:
        """A view of a complex value that is known in parts: the same view of each."""
        pair = self.pairs.get(args[0])
        if pair is None or not _is_complex(eqn.outs[0]):
            return None
        outs = trace.emit(eqn.specialization, args, eqn.location, layout_of(eqn, args))
        if eqn.op is RESHAPE:
            parts = [reshape(part, eqn.attrs["shape"]) for part in pair]
        else:
            parts = [bind(eqn.op, part, **eqn.attrs) for part in pair]
        self.pairs[outs[0]] = _Pair(*parts)
        return outs


def _whole(part: object, shape: tuple[int, ...], kind: Any) -> Tensor:
    """A part of the type and shape of the result."""
    if not isinstance(part, Tensor):
        return full(shape, part, dtype=kind)
    part = part if part.dtype is kind else cast(part, kind)
    return part if part._type.shape == shape else expand(part, shape)


# -- rules --------------------------------------------------------------------------------------


def _pair(x: object) -> _Pair:
    return x if isinstance(x, _Pair) else _Pair(x, 0.0)


def _each(row: Op) -> Callable[..., _Pair]:
    """A row that maps both parts of its first argument alike."""
    return lambda z, *rest, **attrs: _Pair(*(bind(row, part, *rest, **attrs) for part in z))


def _sum_of(row: Op) -> Callable[..., object]:
    def rule(a: Any, b: Any) -> _Pair:
        parts = zip(_pair(a), _pair(b), strict=True)
        return _Pair(*(bind(row, p, q) if _has_tensor(p, q) else _number(row, p, q)
                       for p, q in parts))  # fmt: skip

    return rule


def _has_tensor(*values: object) -> bool:
    return any(isinstance(v, Tensor) for v in values)


def _number(row: Op, a: float, b: float) -> float:
    return a + b if row is ADD else a - b


def _mul(a: Any, b: Any) -> _Pair:
    (a, b), (c, d) = _pair(a), _pair(b)
    return _Pair(a * c - b * d, a * d + b * c)


def _div(a: Any, b: Any) -> _Pair:
    """By the larger part of the divisor first (Smith); by a real number each part alone."""
    if not isinstance(b, _Pair | Tensor):
        return _Pair(*(part / b for part in _pair(a)))
    (x, y), (c, d) = _pair(a), _pair(b)
    if not isinstance(d, Tensor):
        c, d = (v if isinstance(v, Tensor) else full((), v, dtype=x.dtype) for v in (c, d))
    is_wide = c.abs() >= d.abs()
    top, bottom = where(is_wide, c, d), where(is_wide, d, c)
    ratio = bottom / top
    scale = 1.0 / (top + bottom * ratio)
    re = where(is_wide, x + y * ratio, x * ratio + y) * scale
    im = where(is_wide, y - x * ratio, y * ratio - x) * scale
    is_zero = (c == 0) & (d == 0)
    return _Pair(where(is_zero, x / c.abs(), re), where(is_zero, y / c.abs(), im))


def _cast(x: Any, dtype: Any) -> Any:
    if not dtype.is_complex:
        return cast(x.re, dtype) if x.re.dtype is not dtype else bind(CLONE, x.re)
    return _Pair(*(cast(p, dtype.to_real()) if isinstance(p, Tensor) else p for p in _pair(x)))


def _abs(z: _Pair) -> Tensor:
    return hypot(z.re, z.im)


def _sgn(z: _Pair) -> _Pair:
    size = hypot(z.re, z.im)
    quotient = _div(z, _Pair(where(size == 0, 1.0, size), 0.0))
    return _Pair(*(where(size == 0, 0.0, part) for part in quotient))


def _where(condition: Any, a: Any, b: Any) -> object:
    if isinstance(condition, _Pair):
        return None
    a, b = _pair(a), _pair(b)
    if not (_has_tensor(a.re, b.re) and _has_tensor(a.im, b.im)):
        return None
    return _Pair(where(condition, a.re, b.re), where(condition, a.im, b.im))


def _matmul(a: _Pair, b: _Pair) -> _Pair:
    return _Pair(a.re @ b.re - a.im @ b.im, a.re @ b.im + a.im @ b.re)


def _linear(x: _Pair, weight: _Pair) -> _Pair:
    return _matmul(x, _Pair(*(transpose(part, -1, -2) for part in weight)))


def _exp(z: _Pair) -> _Pair:
    size = exp(z.re)
    return _Pair(size * cos(z.im), size * sin(z.im))


def _equal(is_equal: bool) -> Callable[..., object]:
    def rule(a: object, b: object) -> object:
        (a, b), (c, d) = _pair(a), _pair(b)
        return (a == c) & (b == d) if is_equal else (a != c) | (b != d)

    return rule


def _isnan(z: _Pair) -> Tensor:
    return isnan(z.re) | isnan(z.im)  # type: ignore[no-any-return]


def _cat(*tensors: _Pair, dim: int) -> _Pair:
    return _Pair(cat([t.re for t in tensors], dim), cat([t.im for t in tensors], dim))


def _complex(re: Tensor, im: Tensor) -> _Pair:
    return _Pair(re, im)


def _full(value: Any, size: tuple[int, ...], dtype: Any) -> _Pair:
    return _Pair(*(full(size, part, dtype=dtype.to_real()) for part in _pair(value)))


def _update(base: Any, value: Any, chain: ViewChain) -> _Pair | None:
    """The part that a view shows is replaced: in one, in both, or all of them."""
    pairs = base, value
    (first, _), *rest = chain.ops
    if first is VIEW_AS_REAL and not rest:
        return _Pair(*(value[..., n] for n in range(2)))
    if first in (REAL, IMAG):
        parts = list(_tensors(base))
        at = int(first is IMAG)
        parts[at] = bind(UPDATE, parts[at], value, chain=ViewChain(tuple(rest))) if rest else value
        return _Pair(*parts)
    if not all(isinstance(pair, _Pair) and _has_tensor(*pair) for pair in pairs):
        return None
    if any(op in (REAL, IMAG, VIEW_AS_REAL) for op, _ in chain.ops):
        return None
    base, value = map(_tensors, pairs)
    return _Pair(*(bind(UPDATE, a, b, chain=chain) for a, b in zip(base, value, strict=True)))


def _index_write(row: Op) -> Callable[..., _Pair]:
    """A row that writes slices at indices, of both parts."""

    def rule(x: _Pair, source: object, *indices: Tensor, **attrs: object) -> _Pair:
        parts = zip(_tensors(x), _pair(source), strict=True)
        return _Pair(*(bind(row, part, new, *indices, **attrs) for part, new in parts))

    return rule


def _tensors(pair: _Pair) -> _Pair:
    """A pair of which one part may be a number as two tensors."""
    like = next(part for part in pair if isinstance(part, Tensor))
    return _Pair(*(_whole(part, like._type.shape, like.dtype) for part in pair))


def _part(index: int) -> Callable[[_Pair], Tensor | None]:
    """A part that was computed: contiguous, unlike the view of the row."""

    def rule(z: _Pair) -> Tensor | None:
        part = z[index]
        is_view = isinstance(part, Tensor) and not part.layout_array().flags.c_contiguous
        return None if is_view or not isinstance(part, Tensor) else part

    return rule


RULES: dict[Op, AnyFunction] = {
    ADD: _sum_of(ADD),
    SUB: _sum_of(SUB),
    MUL: _mul,
    DIV: _div,
    CAST: _cast,
    CONJ: lambda z: _Pair(z.re, -z.im),
    ABS_COMPLEX: _abs,
    SGN: _sgn,
    WHERE: _where,
    MATMUL: _matmul,
    LINEAR: _linear,
    TABLE["exp"]: _exp,
    TABLE["eq"]: _equal(True),
    TABLE["ne"]: _equal(False),
    TABLE["isnan"]: _isnan,
    CAT: _cat,
    UPDATE: _update,
    INDEX_ADD: _index_write(INDEX_ADD),
    INDEX_COPY: _index_write(INDEX_COPY),
    COMPLEX: _complex,
    FULL: _full,
    REAL: _part(0),
    IMAG: _part(1),
    **{row: _each(row) for row in (CLONE, SUM, MEAN, TABLE["neg"])},
    **{row: _each(row) for row in (PAD_SLICE, FLIP, ROLL, INDEX, INDEX_SUM, FOLD)},
}
