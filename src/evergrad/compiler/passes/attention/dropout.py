"""Pattern matching of dropout on attention's weights, and its masks as packed bits.

Weights are multiplied with noise: a mask of zeros and ones, divided by the probability to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evergrad.compiler.kernels.attention.rows import Dropout
from evergrad.compiler.kernels.random_rows import CHANCE_BITS, COUNTED_CHANCE, MASK_OF_BITS
from evergrad.compiler.passes.attention.patterns import Facts
from evergrad.compiler.passes.rewriter import specialize, with_equations
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.elementwise.basic import CAST, DIV, MUL
from evergrad.ops.rows.random.draws import CHANCE


class Noise(NamedTuple):
    """The factor of the weights: ``mask`` is the equation of zeros and ones, ``region`` the
    equations from there to the noise, and ``drawn`` the operands of the mask."""

    var: Var
    mask: Equation
    region: list[Equation]
    drawn: tuple[Var, ...]
    dropout: Dropout


def find_noise(facts: Facts, var: object, shape: Shape) -> Noise | None:
    """A factor of weights of a shape as dropout noise, if it matches."""
    if not isinstance(var, Var) or var.type.shape != shape:
        return None
    if not var.type.dtype.is_floating_point:
        return None
    region: list[Equation] = []
    scale = np.float32(1)
    mask = var
    scaled = facts.made_by(var, MUL, DIV)
    if scaled is not None:
        number = facts.number(scaled.args[1])
        if not isinstance(scaled.args[0], Var) or not isinstance(number, (int, float)):
            return None
        scale = scale * number if scaled.op is MUL else scale / np.float32(number)
        region.append(scaled)
        mask = scaled.args[0]
    scale = scale.astype(var.type.dtype.np)  # as the noise is rounded
    return _of_mask(facts, var, mask, region, float(scale))


def _of_mask(
    facts: Facts, var: Var, mask: Var, region: list[Equation], scale: float
) -> Noise | None:
    maker = facts.made_by(mask, CAST, MASK_OF_BITS, COUNTED_CHANCE)
    if maker is None or len(mask.type.shape) < 2:
        return None
    if maker.op is CAST:
        if facts.made_by(maker.args[0], CHANCE) is None:
            return None
        dropout = Dropout(0.0, scale, counted=False)
    elif maker.op is MASK_OF_BITS:
        dropout = Dropout(0.0, scale, counted=False)
    else:
        dropout = Dropout(maker.attrs["keep"], scale, counted=True)
    return Noise(var, maker, [*region, maker], maker.args, dropout)


def with_packed_masks(graph: Graph, masks: Sequence[Equation]) -> Graph:
    """The graph with masks (bytes, and a cast of them) sampled and stored as bits."""
    chances = {mask.args[0]: mask for mask in masks}
    gone = {id(mask) for mask in masks}
    equations: list[Equation] = []
    for eqn in graph.equations:
        mask = chances.get(eqn.outs[0])
        if mask is not None:
            equations += _drawn_as_bits(eqn, mask)
        elif id(eqn) not in gone:
            equations.append(eqn)
    return with_equations(graph, equations)


def _drawn_as_bits(chance: Equation, mask: Equation) -> list[Equation]:
    size, out = chance.attrs["size"], mask.outs[0]
    generator = chance.attrs["generator"]
    drawing = specialize(CHANCE_BITS, *chance.args, size=size, generator=generator)
    words = Var(drawing.out_types[0], out.trace)
    spreading = specialize(MASK_OF_BITS, words, size=size, dtype=out.type.dtype)
    return [
        Equation(drawing, chance.args, (words,), chance.location),
        Equation(spreading, (words,), (out,), mask.location),
    ]
