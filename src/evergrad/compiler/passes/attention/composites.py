"""Attention of the library: composites that the attention kernels take.

A composite with its derivatives becomes one :class:`~.rewrite.Attended`. A derivative
alone does so too: the kernels then compute the result, which it reads, as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from evergrad.compiler.kernels.attention.rows import BATCH_DIMS, Steps
from evergrad.compiler.passes.attention.dropout import Noise, find_noise
from evergrad.compiler.passes.attention.patterns import Facts
from evergrad.compiler.passes.attention.rewrite import Attended, Gradients
from evergrad.core import dtypes
from evergrad.core.composite import Body
from evergrad.core.shapes import Shape, broadcast_shapes
from evergrad.core.trace import Equation, Var
from evergrad.ops.composite.attention import FEW_QUERIES, attended

_FORWARD, _BACKWARD = attended.op, attended.op.derivative
# Queries, keys and values are the first arguments; the kernels give gradients of these.
_OPERANDS = 3
# Their element types; the kernels compute with float32 in any case.
_TYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
_MASK_TYPES = (dtypes.bool_, *_TYPES)


def composites(facts: Facts) -> list[Attended]:
    """The composites of a graph that the kernels take."""
    calls: dict[tuple[Body, tuple[Var, ...]], _Call] = {}
    for eqn in facts.graph.equations:
        if eqn.op is _FORWARD or eqn.op is _BACKWARD:
            body: Body = eqn.attrs["body"]
            body = body if body.of is None else body.of
            args = eqn.args[: len(body.graph.inputs)]  # a derivative takes all of them
            calls.setdefault((body, args), _Call(facts, body, args)).equations.append(eqn)
    found = [call.described() for call in calls.values()]
    return [attention for attention in found if attention is not None]


class _Call:
    """A composite on given arguments: its ``equations`` are itself and derivatives, in order."""

    def __init__(self, facts: Facts, body: Body, args: Sequence[Var]) -> None:
        self.facts = facts
        self.attrs = body.structure.attrs
        self.q, self.k, self.v, *others = args
        *_, has_mask, has_noise = body.structure.present
        self.mask = others[0] if has_mask else None
        self.noise = others[-1] if has_noise else None
        self.y = body.graph.outputs[0].type
        self.equations: list[Equation] = []

    def described(self) -> Attended | None:
        """It in the terms of the kernels, if these take it."""
        noise = self.found_noise()
        if not self.fits() or (self.noise is not None and noise is None):
            return None
        first = self.equations[0]
        result = first.outs[0] if first.op is _FORWARD else Var(self.y, first.outs[0].trace)
        return Attended(
            self.facts.position[id(first)], first.location, self.q, self.k, self.v, False, result,
            self.steps(), self.attrs["groups"], [] if self.mask is None else [self.mask], noise,
            self.mask is not None, [self.gradients(e) for e in self.equations if e.op is _BACKWARD],
            {id(eqn) for eqn in self.equations},
        )  # fmt: skip

    def steps(self) -> Steps:
        """What becomes of a score."""
        steps = [("scale", self.attrs["scale"])]
        if self.attrs["is_causal"]:
            steps.append(("causal", -inf))
        if self.mask is not None:
            is_bool = self.mask.type.dtype is dtypes.bool_
            steps.append(("keep", -inf) if is_bool else ("add", 0.0))
        return tuple(steps)

    def gradients(self, eqn: Equation) -> Gradients:
        given = dict(zip(eqn.attrs["body"].wanted, eqn.outs, strict=True))
        wanted = [given.get(i) for i in range(_OPERANDS)]
        return Gradients(self.facts.position[id(eqn)], eqn.args[-1], *wanted)

    def found_noise(self) -> Noise | None:
        return find_noise(self.facts, self.noise, self.scores())

    def scores(self) -> Shape:
        """The shape of scores by query head."""
        (*queries, rows, _), (*keys, columns, _) = self.q.type.shape, self.k.type.shape
        batch, groups = broadcast_shapes(queries, keys), self.attrs["groups"]
        if groups > 1:
            batch, rows = (*batch[:-1], batch[-1] * groups), rows // groups
        return (*batch, rows, columns)

    def fits(self) -> bool:
        """Whether the kernels can take it."""
        scale = self.attrs["scale"]
        if not isinstance(scale, int | float) or not scale:
            return False
        operands = (self.q.type, self.k.type, self.v.type)
        is_forward = self.noise is None and all(e.op is _FORWARD for e in self.equations)
        if is_forward and self.q.type.shape[-2] <= FEW_QUERIES:
            return False
        if any(t.dtype not in _TYPES or not t.numel for t in operands):
            return False
        batch = broadcast_shapes(self.q.type.shape[:-2], self.k.type.shape[:-2])
        if batch != self.y.shape[:-2] or len(batch) > BATCH_DIMS:
            return False
        if self.mask is not None:
            kind, scores = self.mask.type, self.scores()
            if kind.dtype not in _MASK_TYPES or broadcast_shapes(kind.shape, scores) != scores:
                return False
        wanted = {i for e in self.equations for i in e.attrs["body"].wanted}
        return all(i < _OPERANDS for i in wanted)
