"""What the machine is that is compiled for, told without asking LLVM where the system tells it."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_CPU_INFO = Path("/proc/cpuinfo")
# The lines that tell what a processor can do, and not how it is doing.
_TELLING = frozenset((
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
))  # fmt: skip


def llvm() -> Any:
    """LLVM in this process."""
    from evergrad.compiler.native import llvm_backend  # start-up: tens of megabytes, rarely needed

    return llvm_backend


@cache
def _told() -> dict[str, str]:
    """What the system tells of the first processor; nothing where it is no Linux."""
    found: dict[str, str] = {}
    try:
        with _CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if not line.strip() and found:
                    break
                if name.strip() in _TELLING:
                    found[name.strip()] = value.strip()
    except OSError:
        return {}
    return found if {"flags", "Features"} & found.keys() else {}


@cache
def target_name() -> str:
    """The machine that is compiled for and the version of LLVM, as a text: equal texts in, equal
    object code out."""
    told = _told()
    if not told:
        return llvm().description()  # type: ignore[no-any-return]
    lines = [f"{name} {value}" for name, value in sorted(told.items())]
    return "\n".join([sys.platform, platform.machine(), *lines, _llvm_version()])


def _llvm_version() -> str:
    found = find_spec("llvmlite")
    if found is None or found.origin is None:
        return "none"
    path = Path(found.origin).parent / "_version.py"
    if path.exists():
        return path.read_text(encoding="utf-8")
    return str(import_module("llvmlite").__version__)  # frozen: there are no sources on disk


def _has(feature: str) -> bool:
    told = _told()
    if told:
        return feature in told.get("flags", told.get("Features", "")).split()
    return llvm().has_feature(feature)  # type: ignore[no-any-return]


@cache
def vector_bits() -> int:
    """The widest vectors that loops are given on this machine."""
    return 512 if _has("avx512f") else 256


@cache
def has_fma() -> bool:
    """Whether this machine multiplies and adds with one instruction and one rounding."""
    return platform.machine() in ("aarch64", "arm64") or _has("fma")
