"""Programs of the stages of paths; equal stages of the paths of a function have one."""

from __future__ import annotations

from collections.abc import Iterable

from evergrad.compiler.cache.fingerprint import fingerprint_of
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.frontend.arguments.signature import address_of
from evergrad.compiler.frontend.paths.path import Path, Stage
from evergrad.compiler.program_cache import program_of
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.core.python_numbers import Expressions


def compile_stages(
    path: Path, others: Iterable[Path], limit: int | None, arena: SharedArena, on_disk: bool
) -> None:
    """Give the stages of a path their programs, or those of other paths that are the same."""
    known = {
        stage.key: stage
        for other in others for stage in other.stages if stage is not None and stage.key is not None
    }  # fmt: skip
    for number, stage in enumerate(path.stages):
        if stage is None:
            continue
        stage.key = _key_of(stage)
        if stage.key in known:
            path.stages[number] = known[stage.key]
        else:
            stage.program = program_of(stage.captured, limit, arena, on_disk)


def _key_of(stage: Stage) -> object:
    """What is equal for a stage that computes the same from the same; ``None`` if unknown."""
    captured = stage.captured
    bindings = ProcessBindings(captured)
    found = fingerprint_of(captured, bindings, None)
    if found is None:
        return None
    memory = [(id(t._storage), address_of(t._value)) for t in captured.outside]
    generators = [id(generator) for generator in bindings.generators]
    options = [
        None if isinstance(container, Expressions) else (id(container), key, part)
        for container, key, part in captured.numbers
    ]
    return found, repr((stage.first, stage.inputs, memory, generators, options))
