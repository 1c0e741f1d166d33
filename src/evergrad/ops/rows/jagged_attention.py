"""Attention of sequences of different lengths, one after the other in one dimension.

Queries are ``[tokens, heads, width]``, keys and values ``[tokens, shared heads, width]``; sequence
``i`` has the tokens from ``offsets[i]`` to ``offsets[i + 1]``, and attends to nothing else. Offsets
are tensors, so a compiled program reads them at run time. Tokens outside of all sequences give
zeros. Nothing is padded, and no more than the scores of a block of queries is held: derivatives
compute them again.

With ``S = scale q k^T`` (causal: where key <= query), ``P = softmax(S)`` and ``out = P v``, the
first derivative for a cotangent ``g`` is

    dv = P^T g,  dP = g v^T,  dS = P (dP - sum(g out)),  dq = scale dS k,  dk = scale dS^T q

Dropout multiplies ``P`` in ``out`` and ``dv``, and ``dP``, by factors that are 0 or
``1 / (1 - p)``, by the elements of a counter-based random stream: two more arguments are its key
and its first block, and a weight has the number that it has in the matrix of all tokens by all
tokens for each head. So the same weights are dropped wherever they are computed, and nothing is
stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.core import blas
from evergrad.core.bind import bind
from evergrad.core.eager.parallel_ufunc import parallel_for
from evergrad.core.families import opaque
from evergrad.core.namespace import ops
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.rng.bit_generators import philox_chances
from evergrad.core.row_facts import AutocastPolicy, lowered, numpy_evaluates
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.elementwise.basic import exp
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.indexing.index import INDEX
from evergrad.ops.rows.matmul import matmul
from evergrad.ops.rows.movement.views import expand, movedim, reshape, transpose
from evergrad.ops.rows.random.draws import randint
from evergrad.ops.rows.reduce.extrema import amax
from evergrad.ops.surface.handles import detach

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype

# Queries of a block: its scores stay in the cache, and a causal block skips the keys behind it.
_BLOCK = 64

_EMIT = lowered("kernels.attention")
_EMIT_BACKWARD = lowered("kernels.attention", strided=True)


# -- sequences ----------------------------------------------------------------------------------


class _Block(NamedTuple):
    """Queries of one sequence, and the keys they may attend to: rows of the arrays."""

    queries: slice
    keys: slice
    first: int  # the position of the first query in its sequence


def _sequences(
    q_offsets: Array, k_offsets: Array, queries: int, keys: int
) -> list[tuple[int, ...]]:
    """(begin, end) of queries and keys of each sequence, the most expensive first."""
    for offsets, extent in ((q_offsets, queries), (k_offsets, keys)):
        grows = offsets.size and offsets[0] >= 0 and (np.diff(offsets) >= 0).all()
        if not grows or offsets[-1] > extent:
            raise ShapeError(
                f"offsets must grow from 0 to at most {extent}, the number of tokens; got "
                f"{offsets.tolist()}"
            )
    ends = zip(q_offsets, q_offsets[1:], k_offsets, k_offsets[1:], strict=False)
    found = [(int(a), int(b), int(c), int(d)) for a, b, c, d in ends if b > a]
    return sorted(found, key=lambda s: (s[0] - s[1]) * (s[3] - s[2]))


def _blocks(sequence: tuple[int, ...], causal: bool) -> Iterator[_Block]:
    begin, end, key_begin, key_end = sequence
    for first in range(0, end - begin, _BLOCK):
        last = min(first + _BLOCK, end - begin)
        stop = min(key_end, key_begin + last) if causal else key_end
        yield _Block(slice(begin + first, begin + last), slice(key_begin, stop), first)


def _heads(x: Array, rows: slice, groups: int = 1) -> Array:
    """Rows of ``[tokens, heads, width]`` as ``[shared heads, groups, rows, width]``, a view."""
    part = x[rows]
    return part.reshape(len(part), -1, groups, part.shape[2]).transpose(1, 2, 0, 3)


def _shared(x: Array, rows: slice) -> Array:
    return x[rows].transpose(1, 0, 2)[:, None]


def _back(x: Array) -> Array:
    """From ``[shared heads, groups, rows, width]`` to ``[rows, heads, width]``."""
    shared, groups, rows, width = x.shape
    return x.transpose(2, 0, 1, 3).reshape(rows, shared * groups, width)


def _over_groups(x: Array) -> Array:
    """The sum over the query heads that share a head, ``[rows, shared heads, width]``."""
    return (x[:, 0] if x.shape[1] == 1 else x.sum(1)).transpose(1, 0, 2)


def _powers(q: Array, k: Array, block: _Block, causal: bool) -> tuple[Array, Array, Array]:
    """``P`` of one block but for the sums it is divided by, those, and the largest scores. Queries
    are scaled."""
    scores = np.matmul(q, k.swapaxes(-1, -2))
    rows, columns = scores.shape[-2:]
    if not columns:
        none = np.zeros((*scores.shape[:-1], 1), scores.dtype)
        return scores, none + 1, none
    if causal and columns > block.first:
        behind = np.arange(columns - block.first) > np.arange(rows)[:, None]
        scores[..., block.first :] += np.where(behind, -np.inf, 0).astype(scores.dtype)
    largest = scores.max(-1, keepdims=True)
    scores -= largest
    np.exp(scores, out=scores)
    return scores, scores.sum(-1, keepdims=True), largest


class _Factors(NamedTuple):
    """What dropout multiplies weights with; ``None`` without dropout."""

    key: int
    offset: int
    rate: float
    tokens: tuple[int, int]

    @classmethod
    def of(cls, drawn: Any, rate: float, queries: int, keys: int) -> _Factors | None:
        if not rate:
            return None
        return cls(int(drawn[0]), int(drawn[1]), rate, (queries, keys))

    def at(self, heads: int, queries: slice, keys: slice, dtype: Any) -> Any:
        """The factors of some queries and keys, ``[heads, queries, keys]``."""
        rows, columns = (np.arange(x.start, x.stop, dtype=np.uint64) for x in (queries, keys))
        each, width = (np.uint64(n) for n in self.tokens)
        row = np.arange(heads, dtype=np.uint64)[:, None] * each + rows
        keep = 1 - self.rate
        kept = philox_chances(self.key, self.offset, keep, row[..., None] * width + columns)
        return kept.astype(dtype) * dtype.type(1 / keep if keep else 0)


def _dropped(weights: Array, block: _Block, factors: _Factors | None) -> Any:
    """Weights ``[shared heads, groups, queries, keys]``, or their cotangents, after dropout."""
    if factors is None:
        return weights
    heads = weights.shape[0] * weights.shape[1]
    found = factors.at(heads, block.queries, block.keys, weights.dtype)
    return weights * found.reshape(weights.shape)


def _each(
    function: Callable[[tuple[int, ...]], None],
    q: Array,
    k: Array,
    q_offsets: Array,
    k_offsets: Array,
) -> None:
    sequences = _sequences(q_offsets, k_offsets, len(q), len(k))
    blas.small_call(parallel_for, function, sequences)


# -- evaluation ---------------------------------------------------------------------------------


def _forward(q: Array, k: Array, v: Array, q_offsets: Array, k_offsets: Array, *drawn: object,
             scale: float, causal: bool, dropout: float) -> tuple[Array, Array]:  # fmt: skip
    heads = q.shape[1]
    out = np.zeros((len(q), heads, v.shape[2]), q.dtype)
    stats = np.zeros(2 * len(q) * heads, q.dtype)
    groups = heads // max(k.shape[1], 1)
    factors = _Factors.of(drawn, dropout, len(q), len(k))

    def attend(sequence: tuple[int, ...]) -> None:
        begin, end = sequence[:2]
        own = stats[2 * heads * begin : 2 * heads * end].reshape(heads, 2, end - begin)
        for block in _blocks(sequence, causal):
            queries = _heads(q, block.queries, groups) * scale
            powers, sums, largest = _powers(queries, _shared(k, block.keys), block, causal)
            weights = _dropped(powers, block, factors)
            out[block.queries] = _back(np.matmul(weights, _shared(v, block.keys)) / sums)
            here = slice(block.queries.start - begin, block.queries.stop - begin)
            own[:, 0, here] = largest.reshape(heads, -1)
            own[:, 1, here] = 1 / sums.reshape(heads, -1)

    _each(attend, q, k, q_offsets, k_offsets)
    return out, stats


def _backward(g: Array, out: Array, stats: Array, q: Array, k: Array, v: Array, q_offsets: Array,
              k_offsets: Array, *drawn: object, scale: float, causal: bool,
              dropout: float) -> tuple[Array, Array, Array]:  # fmt: skip
    dq, dk, dv = np.zeros(q.shape, q.dtype), np.zeros(k.shape, k.dtype), np.zeros(v.shape, v.dtype)
    groups = q.shape[1] // max(k.shape[1], 1)
    factors = _Factors.of(drawn, dropout, len(q), len(k))

    def pull(sequence: tuple[int, ...]) -> None:
        for block in _blocks(sequence, causal):
            queries = _heads(q, block.queries, groups) * scale
            cotangents, results = (_heads(x, block.queries, groups) for x in (g, out))
            keys, values = (_shared(x, block.keys) for x in (k, v))
            weights, sums, _ = _powers(queries, keys, block, causal)
            weights /= sums
            slope = _dropped(np.matmul(cotangents, values.swapaxes(-1, -2)), block, factors)
            slope -= (cotangents * results).sum(-1, keepdims=True)
            slope *= weights
            dq[block.queries] = _back(np.matmul(slope, keys) * scale)
            dk[block.keys] += _over_groups(np.matmul(slope.swapaxes(-1, -2), queries))
            kept = _dropped(weights, block, factors)
            dv[block.keys] += _over_groups(np.matmul(kept.swapaxes(-1, -2), cotangents))

    _each(pull, q, k, q_offsets, k_offsets)
    return dq, dk, dv


# -- rows ---------------------------------------------------------------------------------------


def _type(
    q: TensorType, k: TensorType, v: TensorType, *offsets: TensorType, **attrs: object
) -> tuple[TensorType, TensorType]:
    tokens, heads, _ = q.shape
    return (
        tensor_type((tokens, heads, v.shape[2]), q.dtype),
        tensor_type((2 * tokens * heads,), q.dtype),
    )


def _backward_type(g: TensorType, out: TensorType, stats: TensorType, q: TensorType, k: TensorType,
                   v: TensorType, *offsets: TensorType, **attrs: object
                   ) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
    return q, k, v


def _vjp(gs: Any, outs: Any, *args: Tensor, **attrs: object) -> object:
    """The statistics are for the derivative alone, and have none themselves."""
    if gs[0] is None:
        return (None,) * len(args)
    rest = (None,) * (len(args) - 3)
    return *bind(JAGGED_ATTENTION_BACKWARD, gs[0], *outs, *args, **attrs), *rest


def _second_vjp(gs: Any, results: object, g: Tensor, out: Tensor, stats: Tensor, q: Tensor,
                k: Tensor, v: Tensor, q_offsets: Tensor, k_offsets: Tensor, *drawn: Tensor,
                scale: float, causal: bool, dropout: float) -> object:  # fmt: skip
    """The cotangents of ``g, out, q, k, v`` from those (``a, b, c``) of ``dq, dk, dv``; what they
    are by the statistics is contained in those of ``q`` and ``k``.

    In ops, on the scores of all tokens with those of other sequences masked: right in any order,
    but in the memory of ``tokens^2``. With ``W = scale (a k^T + q b^T)`` the derivative of
    ``<dS, W> + <P, g c^T>`` is taken by ``P``, ``dP`` and ``sum(g out)``, and by the ``q`` and
    ``k`` that ``dq`` and ``dk`` contain themselves.
    """
    shared = k._type.shape[1]
    groups = q._type.shape[1] // max(shared, 1)
    given = [ops.zeros_like(x) if c is None else c for c, x in zip(gs, (q, k, v), strict=True)]
    a, g_, o_, q_ = (movedim(x, 1, 0) for x in (given[0], g, out, q))  # [heads, tokens, width]
    b, c, k_, v_ = (_repeated(x, groups) for x in (given[1], given[2], k, v))
    scores = matmul(q_, transpose(k_, -1, -2)) * scale
    weights = _masked_weights(scores, q_offsets, k_offsets, causal)
    factors = _factor_matrix(scores, drawn, dropout)
    slope = _times(matmul(g_, transpose(v_, -1, -2)), factors)
    slope = slope - ops.sum(g_ * o_, -1, True)  # dP - sum(g out)
    along = (matmul(a, transpose(k_, -1, -2)) + matmul(q_, transpose(b, -1, -2))) * scale  # W
    by_slope = weights * along
    mean = ops.sum(by_slope, -1, True)
    by_weights = slope * along + _times(matmul(g_, transpose(c, -1, -2)), factors)
    by_scores = weights * (by_weights - ops.sum(weights * by_weights, -1, True)) * scale
    first = weights * slope * scale  # scale dS
    by_keys = matmul(transpose(by_scores, -1, -2), q_) + matmul(transpose(first, -1, -2), a)
    by_product, kept = _times(by_slope, factors), _times(weights, factors)
    by_values = matmul(transpose(by_product, -1, -2), g_)
    return (
        movedim(matmul(by_product, v_) + matmul(kept, c) - mean * o_, 0, 1),
        movedim(-mean * g_, 0, 1),
        ops.zeros_like(stats),
        movedim(matmul(by_scores, k_) + matmul(first, b), 0, 1),
        _summed(by_keys, groups), _summed(by_values, groups), *(None,) * (2 + len(drawn)),
    )  # fmt: skip


def _factor_matrix(scores: Tensor, drawn: tuple[Tensor, ...], dropout: float) -> Tensor | None:
    """What dropout multiplies the weights of all tokens with."""
    if not dropout:
        return None
    size, kind = scores._type.shape, scores.dtype
    return bind(JAGGED_DROPOUT_FACTORS, *drawn, size=size, kind=kind, dropout=dropout)  # type: ignore[no-any-return]


def _times(x: Tensor, factors: Tensor | None) -> Tensor:
    return x if factors is None else x * factors


def _all_factors(*drawn: Any, size: tuple[int, int, int], kind: dtype, dropout: float) -> object:
    heads, queries, keys = size
    factors = _Factors(int(drawn[0]), int(drawn[1]), dropout, (queries, keys))
    return factors.at(heads, slice(0, queries), slice(0, keys), kind.np)


def _repeated(x: Tensor, groups: int) -> Tensor:
    """``[tokens, shared heads, width]`` for each query head, ``[heads, tokens, width]``."""
    tokens, shared, width = x._type.shape
    heads = movedim(x, 1, 0)
    if groups == 1:
        return heads
    wide = expand(reshape(heads, (shared, 1, tokens, width)), (shared, groups, tokens, width))
    return reshape(wide, (shared * groups, tokens, width))


def _summed(x: Tensor, groups: int) -> Tensor:
    """The transpose of :func:`_repeated`."""
    heads, tokens, width = x._type.shape
    parts = reshape(x, (heads // groups, groups, tokens, width))
    return movedim(ops.sum(parts, 1), 0, 1)


def _masked_weights(scores: Tensor, q_offsets: Tensor, k_offsets: Tensor, causal: bool) -> Tensor:
    """``P`` of all tokens, zero between tokens of different sequences."""
    rows, columns = scores._type.shape[-2:]
    if not rows or not columns:
        return scores
    query, at = _sequence_of(q_offsets, rows)
    key, other = _sequence_of(k_offsets, columns)
    within = (query >= 0) & (query < q_offsets._type.shape[0] - 1)
    seen = (reshape(query, (rows, 1)) == key) & reshape(within, (rows, 1))
    if causal:
        seen = seen & (reshape(at, (rows, 1)) >= other)
    # Each row has its largest score among those it sees; a row that sees nothing has zeros.
    largest = amax(detach(ops.where(seen, scores, -math.inf)), -1, True)
    shifted = scores - ops.where(largest == -math.inf, 0.0, largest)
    powers = ops.where(seen, exp(ops.where(seen, shifted, 0.0)), 0.0)
    sums = ops.sum(powers, -1, True)
    weights: Tensor = powers / ops.where(sums == 0, 1.0, sums)
    return weights


def _sequence_of(offsets: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """The number of the sequence of each token, and its position in there."""
    token = ops.arange(tokens)
    number = ops.sum(reshape(token, (tokens, 1)) >= offsets, 1) - 1
    last = offsets._type.shape[0] - 1
    begin = bind(INDEX, offsets, clamp(number, 0, last), start=0, wrap=False)
    return number, token - begin


JAGGED_ATTENTION = opaque(
    "jagged_attention", _forward, _type, _vjp, outputs=2, emit=_EMIT,
    autocast=AutocastPolicy.KEEP,
    doc="Attention of sequences of different lengths, without padding; and of each query the "
    "largest score and one over the sum of exponentials.",
)  # fmt: skip
JAGGED_ATTENTION_BACKWARD = opaque(
    "jagged_attention_backward", _backward, _backward_type,
    _second_vjp, outputs=3, emit=_EMIT_BACKWARD, autocast=AutocastPolicy.KEEP,
    doc="The cotangents of queries, keys and values of jagged_attention.",
)  # fmt: skip
JAGGED_DROPOUT_FACTORS = opaque(
    "jagged_dropout_factors", _all_factors,
    lambda *drawn, size, kind, dropout: tensor_type(size, kind), NONDIFFERENTIABLE,
    emit=numpy_evaluates("only second derivatives of attention with dropout need it"),
    autocast=AutocastPolicy.KEEP, upcast=False,
    doc="What the dropout of jagged_attention multiplies the weights of all tokens with.",
)  # fmt: skip


def jagged_attention(
    query: Tensor, key: Tensor, value: Tensor, q_offsets: Tensor, k_offsets: Tensor, *,
    scale: float, causal: bool = False, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """Attention of ``[tokens, heads, width]`` within each of the sequences that offsets give;
    weights are dropped with probability ``dropout``, by a stream that the default generator
    draws."""
    if query.ndim != 3 or key.ndim != 3 or value.ndim != 3:
        raise ShapeError("jagged_attention(): queries, keys and values are [tokens, heads, width]")
    shared = key._type.shape[1]
    if key._type.shape[:2] != value._type.shape[:2] or query._type.shape[1] % max(shared, 1):
        raise ShapeError(
            f"jagged_attention(): {list(query.shape)} queries do not go with keys of "
            f"{list(key.shape)} and values of {list(value.shape)}"
        )
    drawn = randint(-(1 << 63), (1 << 63) - 1, (2,)).unbind() if dropout else ()
    return bind(  # type: ignore[no-any-return]
        JAGGED_ATTENTION, query, key, value, q_offsets, k_offsets, *drawn, scale=scale,
        causal=causal, dropout=float(dropout),
    )[0]  # fmt: skip
