"""Pattern matching of attention: products, masks, softmax and derivatives become two equations.

:func:`recognise_attention` matches ``softmax(f(q @ k^T)) @ v``, with an elementwise ``f`` (scales
and masks) and dropout of the weights, and its derivative, as they were traced, and replaces them by
``attention`` and ``attention_backward``. It does so only if nothing else reads the scores or the
weights. This is for attention written by hand: that of the library is a composite, which
:mod:`.composites` describes and the same pass replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergrad.compiler.kernels.attention.rows import BATCH_DIMS, MASKS
from evergrad.compiler.passes.attention.composites import composites
from evergrad.compiler.passes.attention.dropout import Noise, find_noise, with_packed_masks
from evergrad.compiler.passes.attention.patterns import (
    INFINITY,
    SOFTMAXES,
    Facts,
    Match,
    System,
    unless_lost,
)
from evergrad.compiler.passes.attention.rewrite import Attended, Gradients, replaced
from evergrad.core import dtypes
from evergrad.core.op import Op
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.composite.attention import FEW_QUERIES
from evergrad.ops.rows.elementwise.basic import ADD, CAST, DIV, MUL, WHERE
from evergrad.ops.rows.matmul import MATMUL
from evergrad.ops.rows.movement.strided import AS_STRIDED
from evergrad.ops.rows.movement.views import PERMUTE, RESHAPE

# Element types of queries, keys and values; the kernels compute with float32 in any case.
_TYPES = (dtypes.float32, dtypes.bfloat16, dtypes.float16)

# -- matches ------------------------------------------------------------------------------------


class Backward:
    """The gradients computed from one cotangent of the result; ``None`` where there is none."""

    def __init__(self, cotangent: Var) -> None:
        self.cotangent = cotangent
        self.dq: Equation | None = None
        self.dk_transposed: Equation | None = None
        self.dv: Equation | None = None

    def targets(self) -> list[Equation]:
        return [e for e in (self.dq, self.dk_transposed, self.dv) if e is not None]


class Attention:
    """One attention of a graph, matched from its last product backwards."""

    q: Any
    k_transposed: Any
    empty_is_zero: bool
    v: Any
    weights: Any

    def __init__(self, facts: Facts, result: Equation) -> None:
        self.facts = facts
        self.result = result
        self.match: Match = Match(facts)
        self.weights, self.v = result.args
        self.groups: int = 1
        self.steps: list[tuple[str, float]] = []
        self.masks: list[Var] = []
        # The derivative of each op on the scores: systems from `d` to `next`.
        self.back: list[tuple[System, ...]] = []
        self.backwards: list[Backward] = []
        self.noise: Noise | None = None

    def found(self) -> bool:
        return (
            self.find_softmax()
            and self.find_scores()
            and self.fits()
            and self.find_backwards()
            and self.has_blocks()
            and self.take_scale()
            and self.is_alone()
        )

    # -- forward --------------------------------------------------------------------------------

    def find_softmax(self) -> bool:
        p = self.weights
        shared = self.facts.made_by(p, RESHAPE)
        self.is_shared: bool = shared is not None
        if shared is not None:
            p = shared.args[0]
            self.match.region.append(shared)
        # Softmax, and perhaps dropout, of 16-bit types run in float32.
        after_dropout = self.before_cast(p)
        dropped = self.before_dropout(after_dropout)
        before_dropout = self.before_cast(dropped)
        self.is_cast: tuple[bool, bool] = after_dropout is not p, before_dropout is not dropped
        p = before_dropout
        for system, back, empty_is_zero in SOFTMAXES:
            tried = self.match.copy()
            tried.bound["p"] = p
            if tried.solves(system):
                self.match.adopt(tried)
                self.softmax_back, self.empty_is_zero = back, empty_is_zero
                return True
        return False

    def before_cast(self, x: Var) -> Var:
        """The operand of a cast between floating types, or the value itself."""
        eqn = self.facts.made_by(x, CAST)
        if eqn is None or not eqn.args[0].type.dtype.is_floating_point:
            return x
        self.match.region.append(eqn)
        return eqn.args[0]  # type: ignore[no-any-return]

    def before_dropout(self, p: Var) -> Var:
        """The result of softmax: the weights before dropout."""
        dropped = self.facts.made_by(p, MUL)
        if dropped is None:
            return p
        for weights, factor in (dropped.args, dropped.args[::-1]):
            self.noise = find_noise(self.facts, factor, p.type.shape)
            if self.noise is not None and isinstance(weights, Var):
                self.match.region += [dropped, *self.noise.region]
                return weights
        return p

    def find_scores(self) -> bool:
        """Match from the operand of softmax back to the product of queries and keys."""
        x = self.match.bound["x"]
        shape = x.type.shape
        while (eqn := self.facts.maker.get(x)) is not None:
            self.match.region.append(eqn)
            if eqn.op is MATMUL:
                self.scores = eqn
                self.q, self.k_transposed = eqn.args
                self.steps.reverse()
                self.masks.reverse()
                return True
            source = self.step(eqn)
            if source is None or (eqn.op is not RESHAPE and source.type.shape != shape):
                return False
            x = source
        return False

    def step(self, eqn: Equation) -> Var | None:
        """Record an op on the scores; its operand, or ``None`` if the op does not match."""
        op, args = eqn.op, eqn.args
        if op in (MUL, DIV):
            return self.scaling(eqn)
        if op is ADD:
            return self.addition(args)
        if op is WHERE:
            return self.masking(args)
        if op is RESHAPE and self.groups == 1:
            return self.sharing(eqn)
        if op is CAST and args[0].type.dtype in _TYPES:
            self.back.append(((("next", (CAST, "d")),),))
            return args[0]  # type: ignore[no-any-return]
        return None

    def scaling(self, eqn: Equation) -> Var | None:
        x, factor = eqn.args
        if eqn.op is MUL and isinstance(factor, Var) and self.facts.number(x) is not None:
            x, factor = factor, x
        number = self.facts.number(factor)
        if not isinstance(x, Var) or not isinstance(number, (int, float)) or not number:
            return None
        self.steps.append(("scale", 1 / number if eqn.op is DIV else number))
        product = (("product", (eqn.op, "d", number)),)
        self.back.append(
            ((*unless_lost("next", "d", "product"), *product), (("next", product[0][1]),))
        )
        return x

    def addition(self, args: Sequence[Any]) -> Var | None:
        if not all(isinstance(a, Var) for a in args):
            return None
        x, mask = args
        if self.facts.made_by(x, MATMUL, MUL, DIV, WHERE, RESHAPE) is None:
            x, mask = mask, x
        self.steps.append(("add", 0.0))
        self.masks.append(mask)
        return x  # type: ignore[no-any-return]

    def masking(self, args: Sequence[Any]) -> Var | None:
        mask, a, b = args
        kind, x, other = ("keep", a, b) if isinstance(a, Var) else ("drop", b, a)
        fill = self.facts.number(other)
        if not isinstance(x, Var) or not isinstance(fill, (int, float)) or fill >= 0:
            return None
        name = f"mask {len(self.steps)}"
        self.match.bound[name] = mask
        kept = (WHERE, name, "d", 0) if kind == "keep" else (WHERE, name, 0, "d")
        # With a finite fill masked scores may still have weight: a triangle is then a mask operand.
        is_last = fill == -INFINITY and all(n in (0.0, fill) for k, n in self.steps if k != "scale")
        if kind == "keep" and is_last and self.facts.is_triangle(mask, x.type.shape[-2:]):
            kind = "causal"
        else:
            self.masks.append(mask)
        self.steps.append((kind, float(fill)))
        self.back.append(((("next", kept),),))
        return x

    def sharing(self, eqn: Equation) -> Var | None:
        """Grouped-query attention: heads of queries that share keys, as one longer head."""
        source = eqn.args[0]
        own, shared = eqn.outs[0].type.shape, source.type.shape
        if len(own) < 3 or len(shared) != len(own) or not all(shared):
            return None
        groups = own[-3] // shared[-3]
        if (*shared[:-3], shared[-3] * groups, shared[-2] // groups, shared[-1]) != own:
            return None
        self.groups = groups
        self.back.append(((("next", (RESHAPE, "d")),),))
        return source  # type: ignore[no-any-return]

    def fits(self) -> bool:
        """Whether the kernels support its shapes and types."""
        y, scores = self.result.outs[0].type.shape, self.scores.outs[0].type.shape
        if (
            min(len(self.q.type.shape), len(self.k_transposed.type.shape), len(self.v.type.shape))
            < 2
        ):
            return False
        if y[:-1] != scores[:-1] or self.weights.type.shape != scores or len(y) > BATCH_DIMS + 2:
            return False
        own = self.q.type.dtype
        if own not in _TYPES or any(x.type.dtype is not own for x in (self.k_transposed, self.v)):
            return False
        if (
            0 in (*scores, *y, self.q.type.shape[-1])
            or self.match.bound["x"].type.dtype not in _TYPES
        ):
            return False
        kinds = [kind for kind, _ in self.steps if kind in MASKS]
        return all(
            mask.type.dtype in (_TYPES if kind == "add" else (dtypes.bool_,))
            for kind, mask in zip(kinds, self.masks, strict=True)
        )

    # -- backward -------------------------------------------------------------------------------

    def find_backwards(self) -> bool:
        """Match the gradients of each cotangent of the result."""
        forward = self.match.bound
        for cotangent in self.cotangents():
            self.match.bound = dict(forward)
            backward = Backward(cotangent)
            self.find_dv(backward)
            if not self.find_dq_dk(backward):
                return False
            self.backwards.append(backward)
        return True

    def has_blocks(self) -> bool:
        """Whether there are enough queries for the kernels, or gradients, which would otherwise
        read intermediate values."""
        return bool(self.backwards) or self.result.outs[0].type.shape[-2] > FEW_QUERIES

    def cotangents(self) -> list[Var]:
        facts = self.facts
        found: dict[Var, None] = {}
        for transposed in facts.users(self.v, PERMUTE):
            if facts.is_transpose_of(transposed.outs[0], self.v):
                for eqn in facts.users(transposed.outs[0], MATMUL):
                    if eqn.outs[0].type.shape == self.weights.type.shape:
                        found[eqn.args[0]] = None
        for transposed in facts.users(self.weights, PERMUTE):
            for eqn in facts.users(transposed.outs[0], MATMUL):
                found[eqn.args[1]] = None
        return list(found)

    def find_dv(self, backward: Backward) -> None:
        for eqn in self.facts.users(backward.cotangent, MATMUL):
            transposed = eqn.args[0]
            if eqn.args[1] is backward.cotangent and self.facts.is_transpose_of(
                transposed, self.weights
            ):
                self.match.region.append(self.facts.maker[transposed])
                backward.dv = eqn

    def find_dq_dk(self, backward: Backward) -> bool:
        """Match from the cotangent of the weights to those of queries and keys, if it exists."""
        match = self.match
        made = [
            eqn
            for eqn in self.facts.users(backward.cotangent, MATMUL)
            if eqn.args[0] is backward.cotangent and self.facts.is_transposed(eqn.args[1], self.v)
        ]
        if not made:
            return backward.dv is not None
        match.region.append(made[0])
        dp = made[0].outs[0]
        for row in self.ways_back():
            users = [
                e for e in self.facts.users(dp, row)
                if row is not MUL or (self.noise is not None and self.noise.var in e.args)
            ]  # fmt: skip
            if len(users) != 1:
                return False
            match.region.append(users[0])
            dp = users[0].outs[0]
        match.bound["dp"] = dp
        if not match.find("dx", dp, self.softmax_back):
            return False
        d = match.bound["dx"]
        for systems in self.back:
            for name in ("next", "product"):
                match.bound.pop(name, None)
            match.bound["d"] = d
            if not match.find("next", d, *systems):
                return False
            d = match.bound["next"]
        return self.find_last_products(backward, d)

    def ways_back(self) -> list[Op]:
        """The ops on the cotangent of the weights before the derivative of softmax."""
        after_dropout, before_dropout = self.is_cast
        dropped = self.noise is not None
        present = {RESHAPE: self.is_shared, CAST: after_dropout, MUL: dropped}
        return [row for row, is_there in present.items() if is_there] + [CAST] * before_dropout

    def find_last_products(self, backward: Backward, d: Var) -> bool:
        for eqn in self.facts.users(d, MATMUL):
            if eqn.args[0] is d and self.facts.is_transposed(eqn.args[1], self.k_transposed):
                backward.dq = eqn
            elif eqn.args[1] is d and self.facts.is_transposed(eqn.args[0], self.q):
                backward.dk_transposed = eqn
        return backward.dq is not None or backward.dk_transposed is not None

    def take_scale(self) -> bool:
        """Move a scale of the queries from before the product to after it, where possible: it saves
        two passes over them."""
        scaled = self.facts.made_by(self.q, MUL, DIV)
        number = None if scaled is None else self.facts.number(scaled.args[1])
        if scaled is None or not isinstance(number, (int, float)) or not number:
            return True
        last: dict[Backward, Equation] = {}
        for backward in self.backwards:
            if backward.dq is None:
                continue
            out = backward.dq.outs[0]
            users = self.facts.uses.get(out, ())
            if len(users) != 1 or out in self.facts.outputs or users[0].op is not scaled.op:
                return True
            if users[0].args[0] is not out or self.facts.number(users[0].args[1]) != number:
                return True
            last[backward] = users[0]
        for backward, eqn in last.items():
            assert backward.dq is not None
            self.match.region.append(backward.dq)
            backward.dq = eqn
        self.q = scaled.args[0]
        self.steps.insert(0, ("scale", 1 / number if scaled.op is DIV else number))
        return True

    # -- the whole ------------------------------------------------------------------------------

    def targets(self) -> list[Equation]:
        return [self.result, *(eqn for b in self.backwards for eqn in b.targets())]

    def is_alone(self) -> bool:
        """Whether nothing outside of the match reads its intermediates."""
        targets = {id(eqn) for eqn in self.targets()}
        known = targets | {id(eqn) for eqn in self.match.region}
        cotangents = [b.cotangent for b in self.backwards]
        drawn = () if self.noise is None else self.noise.drawn
        for operand in (self.q, self.k_transposed, self.v, *self.masks, *drawn, *cotangents):
            if id(self.facts.maker.get(operand)) in known:
                return False
        for eqn in self.match.region:
            out = eqn.outs[0]
            if id(eqn) in targets or out in self.facts.outputs:
                return False
            if any(id(user) not in known for user in self.facts.uses.get(out, ())):
                return False
        # The gradient of keys gets another layout, so that no view may depend on its strides.
        transposed = [
            b.dk_transposed.outs[0] for b in self.backwards if b.dk_transposed is not None
        ]
        return not any(self.facts.is_seen_by(var, AS_STRIDED) for var in transposed)

    def described(self) -> Attended:
        facts, region = self.facts, self.match.region
        gone = {id(eqn) for eqn in (*region, *self.targets())}
        gradients = [
            Gradients(
                min(facts.position[id(eqn)] for eqn in b.targets()), b.cotangent,
                *(None if eqn is None else eqn.outs[0] for eqn in (b.dq, b.dk_transposed, b.dv)),
            )
            for b in self.backwards
        ]  # fmt: skip
        return Attended(
            facts.position[id(self.result)], self.result.location, self.q, self.k_transposed,
            self.v, True, self.result.outs[0], tuple(self.steps), self.groups, self.masks,
            self.noise, self.empty_is_zero, gradients, gone,
        )  # fmt: skip


# -- the passes ---------------------------------------------------------------------------------


def recognise_attention(graph: Graph) -> Graph:
    """The graph with each attention, and its derivative, as one equation."""
    facts = Facts(graph)
    found = _attentions(facts)
    return replaced(graph, facts, found) if found else graph


def pack_dropout_masks(graph: Graph) -> Graph:
    """The graph in which random masks of attention's dropout are stored as bits."""
    noises = [attention.noise for attention in _attentions(Facts(graph))]
    masks = [noise.mask for noise in noises if noise is not None and noise.mask.op is CAST]
    return with_packed_masks(graph, masks) if masks else graph


def _attentions(facts: Facts) -> list[Attended]:
    products = [Attention(facts, e) for e in facts.graph.equations if e.op is MATMUL]
    found = [attention.described() for attention in products if attention.found()]
    return [*composites(facts), *found]
