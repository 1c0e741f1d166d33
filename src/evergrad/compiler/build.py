"""Builds a program from a captured step: passes, lowering and, under a limit, rematerialization."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.compiler.cache.executable import Executable
from evergrad.compiler.kernels.gemm.select import precompiled
from evergrad.compiler.kernels.registry import LOWERINGS
from evergrad.compiler.native import jit
from evergrad.compiler.passes.pipeline import Target, Written, lift_captures, optimize
from evergrad.compiler.passes.rematerialize import fit_memory
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core.trace import Graph

if TYPE_CHECKING:
    from evergrad.compiler.frontend.captured import Captured


def build_program(
    captured: Captured, limit: int | None, when_bound: Callable[[Executable], None] | None = None,
    arena: SharedArena | None = None,
) -> Program:  # fmt: skip
    """The program of a captured step, with an arena of at most ``limit`` bytes, part of the shared
    ``arena`` if there is one. ``when_bound`` is called with its executable once all kernels have
    machine code."""
    if limit is None:
        for kernel in precompiled(captured.graph):
            jit.compile_async(kernel)

    def build(graph: Graph, recomputed: frozenset[int] = frozenset()) -> Program:
        lifted, constants = lift_captures(graph)
        lowering = Lowering(
            lifted, LOWERINGS, captured.arguments, len(captured.numbers),
            [*captured.outside, *constants], captured.result_count, captured.written, recomputed,
            # Under a limit most kernels that are generated are not those of the final program.
            *([jit.compile_async] if limit is None else []),
        )  # fmt: skip
        program = Program(lowering, when_bound, arena)
        program.executable.constant_bytes = sum(tensor.nbytes for tensor in constants)
        return program

    target = Target.STEP
    written = Written(captured.result_count, len(captured.written))
    program = build(optimize(captured.graph, target, written=written))
    if limit is not None and program.plan.peak > limit:
        target = Target.LIMITED
        program = fit_memory(limit, optimize(captured.graph, target, written=written), build)
    program.executable.target = target
    return program
