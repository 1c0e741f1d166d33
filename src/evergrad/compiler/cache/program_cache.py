"""Programs that outlive their process.

A captured step gets its program from the disk if one was made of the same step before; then no pass
runs and no kernel is written. A program that was made here is kept when its kernels have machine
code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evergrad.compiler.cache.executable import Recipe
from evergrad.compiler.cache.fingerprint import key_of
from evergrad.compiler.cache.process_bindings import Ties
from evergrad.compiler.cache.serialize import packed, unpacked
from evergrad.compiler.frontend.capture import Captured
from evergrad.compiler.native import disk_cache, jit
from evergrad.compiler.runtime.program import Program
from evergrad.core.trace import Graph

_KIND = b"evergrad program 1\n"


def program_of(captured: Captured, limit: int | None) -> Program:
    """The program of a captured step, whose arena has at most ``limit`` bytes."""
    ties = Ties(captured)
    key = key_of(captured, ties, limit)
    if key is None:
        return built(captured, limit)
    path = disk_cache.folder() / f"{key}.program"
    found = _read(path, ties)
    if found is not None:
        return Program(found)
    return built(captured, limit, lambda recipe: _keep(path, recipe, ties))


def built(
    captured: Captured, limit: int | None, when_bound: Callable[[Recipe], None] | None = None
) -> Program:
    """A program made from the graph on."""
    # Who finds his programs on the disk does without all passes, and without their modules.
    from evergrad.compiler.kernels.gemm.select import foreseen
    from evergrad.compiler.passes.decompose import simplify
    from evergrad.compiler.passes.factor_activation_grads import collect_slopes, slopes_with_curves
    from evergrad.compiler.passes.recompute import lighten
    from evergrad.compiler.passes.rematerialize import within
    from evergrad.compiler.passes.split_k import halve_products
    from evergrad.compiler.schedule.lower import Lowering

    if limit is None:
        for kernel in foreseen(captured.graph):
            jit.begin(kernel)
    graph, constants = simplify(captured.graph)
    graph = collect_slopes(halve_products(graph))

    def build(graph: Graph, again: frozenset[int] = frozenset()) -> Program:
        lowering = Lowering(
            graph, captured.arguments, len(captured.numbers), [*captured.outside, *constants],
            captured.result_count, captured.written, again,
            # Under a limit most of the kernels that are written are not those of the program.
            *([jit.begin] if limit is None else []),
        )  # fmt: skip
        return Program(lowering, when_bound)

    program = build(lighten(slopes_with_curves(graph)))
    if limit is None or program.plan.peak <= limit:
        return program
    return within(limit, lighten(graph), build)


def _read(path: Path, ties: Ties) -> Recipe | None:
    data = disk_cache.read(path, _KIND)
    return None if data is None else unpacked(data, ties)


def _keep(path: Path, recipe: Recipe, ties: Ties) -> None:
    data = packed(recipe, ties)
    if data is not None:
        disk_cache.write(path, _KIND, data)
