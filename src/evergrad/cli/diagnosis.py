"""What ``evergrad doctor`` finds out about this machine, as plain data.

A finding is fine, missing (something optional is not there) or broken (something needed does not
work); the last two say what to do. Looking never fails: what cannot be found out is a finding too.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

import evergrad
from evergrad import config
from evergrad.compiler.native import disk_cache, jit, target
from evergrad.memory.reports import size
from evergrad.train.environment import processor_model

State = Literal["ok", "missing", "broken"]

OLDEST_PYTHON = (3, 11)
# Features of processors that decide how fast kernels are.
FEATURES = ("sse4.2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512vnni", "avx512bf16", "neon")
# ``click>=8.1; extra == 'app'``
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)[^;]*(?:;.*extra\s*==\s*['\"]([\w-]+)['\"])?")


@dataclass(frozen=True)
class Finding:
    """One fact about this machine."""

    section: str
    name: str
    value: str
    state: State = "ok"
    fix: str = ""


def diagnose() -> list[Finding]:
    """Everything that is checked, in the order of the report."""
    parts = (_versions, _extras, _processor, _products, _kernel_cache, _compiled_program)
    return [finding for part in parts for finding in _guarded(part)]


def as_data(findings: list[Finding]) -> dict[str, object]:
    """The findings for a program to read."""
    return {"ok": is_healthy(findings), "findings": [asdict(finding) for finding in findings]}


def is_healthy(findings: list[Finding]) -> bool:
    """Whether everything that is needed works."""
    return all(finding.state != "broken" for finding in findings)


def _guarded(part: Callable[[], Iterator[Finding]]) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.extend(part())
    except Exception as error:  # whatever is wrong here is what the user wants to be told
        section = part.__name__.strip("_").replace("_", " ")
        what = f"{type(error).__name__}: {error}"
        fix = "reinstall with: pip install --force-reinstall evergrad"
        found.append(Finding(section, "failed", what, "broken", fix))
    return found


# -- packages -----------------------------------------------------------------------------------


def _versions() -> Iterator[Finding]:
    section = "versions"
    python = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info >= OLDEST_PYTHON:
        yield Finding(section, "Python", python)
    else:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding(section, "Python", python, "broken", f"install Python {oldest} or newer")
    yield Finding(section, "evergrad", f"{evergrad.__version__} ({Path(evergrad.__file__).parent})")
    for name in requirements().get("", ["numpy", "llvmlite"]):
        version = installed_version(name)
        if version is None:
            yield Finding(section, name, "not installed", "broken", f"pip install {name}")
        else:
            yield Finding(section, name, version)
    llvm = _llvm()
    if llvm is not None:
        yield Finding(section, "LLVM", ".".join(map(str, llvm.llvm_version_info)))


def _llvm() -> Any:
    """llvmlite's binding; ``None`` without it."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return None
    return llvm


def _extras() -> Iterator[Finding]:
    for extra, names in sorted(requirements().items()):
        if not extra:
            continue
        versions = {name: installed_version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        told = ", ".join(f"{name} {v or '(not installed)'}" for name, v in versions.items())
        fix = f"pip install 'evergrad[{extra}]'"
        yield Finding("extras", extra, told, *(("missing", fix) if missing else ()))


def requirements() -> dict[str, list[str]]:
    """The packages evergrad asks for: those needed under the empty name, others by extra."""
    try:
        lines = metadata.requires("evergrad") or []
    except metadata.PackageNotFoundError:  # run from its sources, never installed
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match is not None:
            found.setdefault(match[2] or "", []).append(match[1])
    return found


def installed_version(package: str) -> str | None:
    """The version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# -- the machine --------------------------------------------------------------------------------


def _processor() -> Iterator[Finding]:
    llvm = _llvm()
    section = "processor"
    features = {} if llvm is None else llvm.get_host_cpu_features()
    present = [name for name in FEATURES if features.get(name)]
    name = "" if llvm is None else f" ({llvm.get_host_cpu_name()})"
    yield Finding(section, "model", f"{processor_model()}{name}")
    yield Finding(section, "features", " ".join(present) or "none of those that matter here")
    yield Finding(section, "vectors", f"{jit.vector_bits()} bits")
    yield Finding(section, "processors", str(os.cpu_count() or "unknown"))
    yield Finding(section, "threads used", str(evergrad.get_num_threads()))


def _products() -> Iterator[Finding]:
    """The two libraries that multiply matrices: NumPy's own, and that of compiled programs."""
    import scipy_openblas32

    section = "matrix products"
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    name = blas.get("openblas configuration") or f"{blas['name']} {blas['version']}"
    yield Finding(section, "eager", f"{name} (NumPy's)")
    most = evergrad.get_num_threads()
    yield Finding(section, "eager threads", f"1 for small products, {most} for large ones")
    yield Finding(section, "compiled", str(scipy_openblas32.get_openblas_config()))
    yield Finding(section, "compiled threads", f"{most}, each with products of its own")


# -- the compiler -------------------------------------------------------------------------------


def _kernel_cache() -> Iterator[Finding]:
    section = "kernel cache"
    folder = disk_cache.folder()
    sizes = _cached()
    yield Finding(section, "folder", str(folder or "none"))
    yield Finding(section, "moved by", "EVERGRAD_KERNEL_CACHE=/another/folder; safe to remove")
    yield Finding(section, "kept", f"{len(sizes):,} files, {size(sum(sizes.values()))}")
    problem = disk_cache.problem()
    if problem is None:
        yield Finding(section, "writable", "yes")
    else:
        told = f"no, every process compiles all its kernels: {problem}"
        fix = "name a folder of your own (absolute path, mode 700) in EVERGRAD_KERNEL_CACHE"
        yield Finding(section, "writable", told, "missing", fix)


def _cached() -> dict[str, int]:
    """The sizes of the files that hold machine code."""
    folder = disk_cache.folder()
    found = {}
    for path in () if folder is None else folder.glob("*.o"):
        try:
            found[path.name] = path.stat().st_size
        except FileNotFoundError:  # another process has just replaced it
            continue
    return found


def _compiled_program() -> Iterator[Finding]:
    """A tiny program through the whole compiler, against what NumPy gives."""
    section = "compiled program"
    if target.llvmlite_file() is None:
        fix = "pip install llvmlite"
        yield Finding(section, "compiler", "llvmlite is not installed", "missing", fix)
        return
    if not jit.can_jit():
        fix = "allow it (systemd: MemoryDenyWriteExecute=no), or do without evergrad.compile"
        yield Finding(section, "machine code", "the system forbids to make it", "broken", fix)
        return
    x, w = (evergrad.arange(64.0).reshape(8, 8) / 64 + i for i in range(2))

    def program(x: Any, w: Any) -> Any:
        return (x @ w).tanh().sum()

    before = _cached().keys()
    found, expected = evergrad.compile(program)(x, w).item(), program(x, w).item()
    if abs(found - expected) <= 1e-5 * abs(expected):
        yield Finding(section, "result", "the same as without the compiler")
    else:
        fix = "run `evergrad check`, which says what is wrong, and report it"
        yield Finding(section, "result", f"{found}, not {expected}", "broken", fix)
    after = _cached().keys()
    yield Finding(section, "machine code", _origin(len(after - before), bool(after)))
    yield _llvm_place(section)


def _llvm_place(section: str) -> Finding:
    """Where LLVM works: it takes much memory, and is better in processes that end soon."""
    if jit.uses_compile_pool() and jit.check_compile_pool():
        return Finding(section, "LLVM", "in processes of its own")
    if config.COMPILE_IN_PROCESS:
        return Finding(section, "LLVM", "in this process, as EVERGRAD_COMPILE_IN_PROCESS says")
    return Finding(section, "LLVM", "in this process: others cannot be started for it here")


def _origin(new_files: int, has_cache: bool) -> str:
    if new_files:
        return "compiled now and kept for the next process"
    return "found in the cache" if has_cache else "compiled now; there is no cache to keep it in"
