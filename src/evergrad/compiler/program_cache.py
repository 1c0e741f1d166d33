"""The program cache: executables on disk, by the fingerprint of the captured step.

On a hit no pass runs and no kernel is generated. On a miss the program is built, and its executable
is written when all its kernels have machine code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evergrad import config
from evergrad.compiler.cache.executable import Executable
from evergrad.compiler.cache.fingerprint import fingerprint_of
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.cache.serialize import deserialize, serialize
from evergrad.compiler.native import disk_cache
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.compiler.runtime.program import Program

if TYPE_CHECKING:
    from evergrad.compiler.frontend.captured import Captured

_KIND = b"evergrad program 2\n"


def program_of(
    captured: Captured, limit: int | None, arena: SharedArena | None = None, on_disk: bool = True
) -> Program:
    """The program of a captured step, whose arena has at most ``limit`` bytes and is part of the
    shared ``arena`` if there is one. Without ``on_disk`` it is neither looked up nor written: one
    of many shapes is built in about the time that this takes."""
    bindings = ProcessBindings(captured)
    is_cached = on_disk and not config.SHOW_PASSES
    key = fingerprint_of(captured, bindings, limit) if is_cached else None
    path = None if key is None else disk_cache.path_of(f"{key}.program")
    found = None if path is None else _read(path, bindings)
    if found is not None:
        return Program(found, shared_arena=arena)
    # On a hit neither the passes nor the code generators are imported.
    from evergrad.compiler.build import build_program

    if path is None:
        return build_program(captured, limit, arena=arena)
    return build_program(captured, limit, lambda made: _write(path, made, bindings), arena)


def _read(path: Path, bindings: ProcessBindings) -> Executable | None:
    data = disk_cache.read(path, _KIND)
    if data is None:
        return None
    try:
        return deserialize(data, bindings)
    except (LookupError, TypeError, ValueError, RecursionError):  # of another version
        disk_cache.remove(path)
        return None


def _write(path: Path, executable: Executable, bindings: ProcessBindings) -> None:
    data = serialize(executable, bindings)
    if data is not None:
        disk_cache.write(path, _KIND, data)
