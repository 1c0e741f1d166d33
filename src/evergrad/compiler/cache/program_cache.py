"""The program cache: executables on disk, by the fingerprint of the captured step.

On a hit no pass runs and no kernel is generated. On a miss the program is built, and its executable
is written when all its kernels have machine code.
"""

from __future__ import annotations

from pathlib import Path

from evergrad import config
from evergrad.compiler.cache.executable import Executable
from evergrad.compiler.cache.fingerprint import fingerprint_of
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.cache.serialize import deserialize, serialize
from evergrad.compiler.frontend.capture import Captured
from evergrad.compiler.native import disk_cache
from evergrad.compiler.runtime.program import Program

_KIND = b"evergrad program 1\n"


def program_of(captured: Captured, limit: int | None) -> Program:
    """The program of a captured step, whose arena has at most ``limit`` bytes."""
    bindings = ProcessBindings(captured)
    key = None if config.SHOW_PASSES else fingerprint_of(captured, bindings, limit)
    path = None if key is None else disk_cache.folder() / f"{key}.program"
    found = None if path is None else _read(path, bindings)
    if found is not None:
        return Program(found)
    # On a hit neither the passes nor the code generators are imported.
    from evergrad.compiler.build import build_program

    if path is None:
        return build_program(captured, limit)
    return build_program(captured, limit, lambda made: _write(path, made, bindings))


def _read(path: Path, bindings: ProcessBindings) -> Executable | None:
    data = disk_cache.read(path, _KIND)
    return None if data is None else deserialize(data, bindings)


def _write(path: Path, executable: Executable, bindings: ProcessBindings) -> None:
    data = serialize(executable, bindings)
    if data is not None:
        disk_cache.write(path, _KIND, data)
