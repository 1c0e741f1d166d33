"""The pass pipeline: the passes by name, in their order, and the driver that runs them.

Every pass maps a :class:`Graph` to a :class:`Graph`; one that finds nothing to do returns the graph
itself. To add a pass, add one line to :data:`PASSES`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import Flag, auto
from functools import partial
from typing import NamedTuple

from evergrad import config
from evergrad.compiler.passes.attention.match import pack_dropout_masks, recognise_attention
from evergrad.compiler.passes.batch_accumulations import batch_accumulations
from evergrad.compiler.passes.cat_layout import cat_layout
from evergrad.compiler.passes.composites import lower_composites
from evergrad.compiler.passes.constant_fold import constant_fold
from evergrad.compiler.passes.conv_epilogue import fuse_conv_epilogues
from evergrad.compiler.passes.decompose_movement import decompose_movement
from evergrad.compiler.passes.dump import dump
from evergrad.compiler.passes.factor_activation_grads import (
    factor_activation_grads,
    hoist_activation_grads,
)
from evergrad.compiler.passes.group_norm_planes import group_norm_planes
from evergrad.compiler.passes.lower_random import lower_random
from evergrad.compiler.passes.outline_updates import inline_updates, outline_updates
from evergrad.compiler.passes.pool_gradient import fuse_pool_gradients, sum_pool_gradients
from evergrad.compiler.passes.recompute import recompute_cheap
from evergrad.compiler.passes.reuse_reductions import reuse_reductions
from evergrad.compiler.passes.rewriter import eliminate_dead_code
from evergrad.compiler.passes.simplify import simplify
from evergrad.compiler.passes.split_complex import split_complex
from evergrad.compiler.passes.split_k import split_k
from evergrad.compiler.passes.strip_messages import strip_messages
from evergrad.compiler.passes.transpose_products import transpose_products
from evergrad.compiler.passes.unroll_steps import unroll_steps
from evergrad.compiler.passes.verify import Verifier
from evergrad.compiler.passes.widen_narrow import widen_narrow
from evergrad.compiler.passes.widen_weights import widen_weights
from evergrad.compiler.schedule.def_use import forget_def_use
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph
from evergrad.errors import VerificationError


class Target(Flag):
    """What a graph is optimized for; every pass states its targets."""

    DIFFERENTIABLE = auto()  # a joint graph from which second derivatives are taken
    JOINT = auto()  # function and derivative, before they are partitioned
    EAGER = auto()  # a program of eager mode
    STEP = auto()  # a compiled step
    LIMITED = auto()  # a compiled step that exceeds its memory limit and is rematerialized

    COMPILED = STEP | LIMITED
    PROGRAM = EAGER | COMPILED


class Pass(NamedTuple):
    """A pass by name. ``drops_dependence`` marks a pass of identities such as
    ``sum(scatter(g, i)) = sum(g)``, or one that replaces an equation of several results by several
    equations, after which a result may depend on fewer inputs."""

    name: str
    run: Callable[[Graph], Graph]
    targets: Target = Target.PROGRAM
    drops_dependence: bool = False


PASSES = (
    Pass("strip_messages", strip_messages),
    Pass("lower_random", lower_random, Target.PROGRAM | Target.DIFFERENTIABLE),
    Pass("eliminate_dead_code", eliminate_dead_code, Target.PROGRAM | Target.DIFFERENTIABLE),
    Pass("lower_composites", lower_composites, Target.PROGRAM | Target.DIFFERENTIABLE, True),
    Pass("pack_dropout_masks", pack_dropout_masks, Target.PROGRAM | Target.DIFFERENTIABLE),
    Pass("recognise_attention", recognise_attention, Target.PROGRAM | Target.JOINT),
    Pass("unroll_steps", unroll_steps, Target.COMPILED),
    Pass("split_complex", split_complex, Target.COMPILED, True),
    Pass("widen_narrow", widen_narrow),
    Pass("simplify", simplify),
    Pass("decompose_movement", decompose_movement),
    Pass("transpose_products", transpose_products, Target.COMPILED),
    Pass("batch_accumulations", batch_accumulations),
    Pass("cat_layout", cat_layout),
    Pass("constant_fold", constant_fold),
    Pass("fuse_pool_gradients", fuse_pool_gradients),
    Pass("sum_pool_gradients", sum_pool_gradients, drops_dependence=True),
    Pass("fuse_conv_epilogues", fuse_conv_epilogues),
    Pass("group_norm_planes", group_norm_planes),
    Pass("reuse_reductions", reuse_reductions),
    Pass("split_k", split_k, Target.COMPILED),
    Pass("factor_activation_grads", factor_activation_grads, Target.COMPILED),
    Pass("hoist_activation_grads", hoist_activation_grads, Target.STEP),
    Pass("recompute_cheap", recompute_cheap, Target.COMPILED),
    Pass("widen_weights", widen_weights, Target.COMPILED),
)

# Called with the name of a pass and the graph after it; first with "traced" and the input.
Observer = Callable[[str, Graph], None]


class Written(NamedTuple):
    """Which outputs of a graph are final values: of so many ``storages``, after the ``results``."""

    results: int
    storages: int


_NONE_WRITTEN = Written(0, 0)


def optimize(
    graph: Graph, target: Target, observe: Observer | None = None, written: Written = _NONE_WRITTEN
) -> Graph:
    """Run the passes of a target, and verify small graphs: with ``config.VERIFY_EACH_PASS`` after
    each pass, otherwise after the last one; if that fails, passes run again to find the broken one.
    Equations that only ``written`` outputs depend on are set aside meanwhile.
    """
    observers = [] if observe is None else [observe]
    if config.SHOW_PASSES:
        observers.append(_show)
    is_verified = len(graph.equations) <= config.VERIFY_EQUATIONS
    if is_verified and config.VERIFY_EACH_PASS:
        return _run(graph, target, written, observers, Verifier(graph))[0]
    optimized, drops_dependence = _run(graph, target, written, observers)
    forget_def_use()
    if is_verified and optimized is not graph:
        try:
            Verifier(graph).check("pipeline", optimized, drops_dependence)
        except VerificationError:
            _run(graph, target, written, [], Verifier(graph))
            raise
    return optimized


def _run(
    graph: Graph, target: Target, written: Written, observers: Sequence[Observer],
    verifier: Verifier | None = None,
) -> tuple[Graph, bool]:  # fmt: skip
    """The graph after the passes of a target, and whether one of them may drop a dependence."""
    drops_dependence = False
    for watch in observers:
        watch("traced", graph)
    for step in _steps(target, written):
        before, graph = graph, step.run(graph)
        if graph is not before:
            drops_dependence |= step.drops_dependence
            if verifier is not None:
                verifier.check(step.name, graph, step.drops_dependence)
        for watch in observers:
            watch(step.name, graph)
    return graph, drops_dependence


def _steps(target: Target, written: Written) -> list[Pass]:
    """The passes of a target, with those that set updates aside first and last."""
    steps = [step for step in PASSES if step.targets & target]
    if not written.storages:
        return steps
    outline = Pass("outline_updates", lambda graph: outline_updates(graph, *written))
    inline = Pass(
        "inline_updates",
        lambda graph: inline_updates(graph, partial(optimize, target=target), target),
    )
    return [outline, *steps, inline]


def lift_captures(graph: Graph) -> tuple[Graph, list[Tensor]]:
    """The graph with captured tensors as further inputs, and these tensors."""
    inputs = [*graph.inputs, *(var for var, _ in graph.captures)]
    lifted = Graph(inputs, (), graph.equations, graph.outputs, graph.writes)
    return lifted, [tensor for _, tensor in graph.captures]


def _show(name: str, graph: Graph) -> None:
    """Print a graph; config.SHOW_PASSES."""
    title = f"== after {name}: {len(graph.equations)} equations"
    print(title, dump(graph, locations=True), sep="\n", file=sys.stderr)
