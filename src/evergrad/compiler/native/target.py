"""The machine that is compiled for: its identity, and the model that tilings and costs depend on.

Both are read from the system where it reports them, since loading LLVM takes tens of megabytes.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evergrad import config

if TYPE_CHECKING:
    from types import ModuleType

_CPU_INFO = Path("/proc/cpuinfo")
_CPU = Path("/sys/devices/system/cpu/cpu0")
# The lines of cpuinfo that identify a processor and its features, and not its present state.
_IDENTITY = frozenset((
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
))  # fmt: skip
# The names under which glibc's sysconf reports caches (``_SC_LEVEL1_DCACHE_SIZE`` and so on), of
# which Python has only the numbers.
_SYSCONF = {"l1_bytes": 188, "l1_ways": 189, "line_bytes": 190, "l2_bytes": 191, "l3_bytes": 194}
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# Sizes that a line of a cache has; others are a mistake of the report.
_LINES = (16, 32, 64, 128, 256)


# The features that decide between kernels, by level of x86-64.
_LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v2": frozenset(),
    "x86-64-v3": frozenset(("fma", "avx2")),
    "x86-64-v4": frozenset(("fma", "avx2", "avx512f")),
}


def level() -> str:
    """The level that is compiled for instead of this processor (``EVERGRAD_TARGET``), or ''."""
    chosen = config.TARGET
    if chosen and chosen not in _LEVELS:
        known = ", ".join(_LEVELS)
        raise ValueError(f"EVERGRAD_TARGET={chosen!r} is not a level; there are {known}")
    if chosen and platform.machine() not in ("x86_64", "AMD64"):
        raise ValueError(f"EVERGRAD_TARGET={chosen!r} is for x86-64, not {platform.machine()}")
    missing = [feature for feature in _LEVELS.get(chosen, ()) if not _host_has(feature)]
    if missing:
        raise ValueError(f"EVERGRAD_TARGET={chosen!r} needs {missing[0]}, which this CPU lacks")
    return chosen


class MachineModel(NamedTuple):
    """What tilings and cost models depend on; the defaults stand in for what is not reported.

    The number of cores is no part of it: a program is the same for any number of threads. Ports and
    latency are those of the cores that the cost models were fitted on; no system reports them.
    """

    l1_bytes: int = 32 << 10  # data cache of a core
    l1_ways: int = 8
    l2_bytes: int = 1 << 20  # a core's share
    l3_bytes: int = 32 << 20  # shared by all cores
    line_bytes: int = 64
    page_bytes: int = 4096
    vector_bits: int = 256
    fma_ports: int = 2  # vectors multiplied and added in a cycle
    load_ports: int = 2  # vectors loaded in a cycle
    fma_latency: int = 4  # cycles until a sum can be added to

    def cycles(self, products: int, loads: int) -> float:
        """The cycles of a loop body whose vectors are added to sums of their own: the throughput of
        its products or of its loads, or the latency of a sum, is the limit."""
        return max(products / self.fma_ports, loads / self.load_ports, self.fma_latency)

    @property
    def critical_stride(self) -> int:
        """Bytes between addresses that share a set of L1: rows this far apart, or a multiple of it,
        evict each other."""
        return max(self.l1_bytes // self.l1_ways, self.line_bytes)


def llvm() -> ModuleType:
    """LLVM in this process."""
    require_llvm()
    # Start-up: tens of megabytes, rarely needed.
    from evergrad.compiler.native import llvm_backend

    llvm_backend.use_level(level())
    return llvm_backend


@cache
def llvmlite_file() -> Path | None:
    """The file of the package llvmlite; ``None`` if it is not installed."""
    try:
        found = find_spec("llvmlite")
    except (ImportError, ValueError):
        return None
    return None if found is None or found.origin is None else Path(found.origin)


def require_llvm() -> None:
    """Raise unless there is a compiler: eager functions use kernels only where there is one."""
    if llvmlite_file() is None:
        raise ImportError(
            "evergrad.compile generates machine code with the package llvmlite, which is not "
            "installed.\n  fix: pip install llvmlite, or call the function without "
            "evergrad.compile: eager mode needs no compiler (kernels are then NumPy's, and slower)."
        )


# -- identity -----------------------------------------------------------------------------------


@cache
def _cpu_info() -> dict[str, str]:
    """Identity and features of the first processor; empty where the system is no Linux."""
    found: dict[str, str] = {}
    try:
        with _CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if not line.strip() and found:
                    break
                if name.strip() in _IDENTITY:
                    found[name.strip()] = value.strip()
    except OSError:
        return {}
    return found if {"flags", "Features"} & found.keys() else {}


@cache
def target_name() -> str:
    """The processor and the version of LLVM: equal names and equal IR give equal object code."""
    info = _cpu_info()
    if not info:
        return llvm().description()  # type: ignore[no-any-return]
    lines = [f"{name} {value}" for name, value in sorted(info.items())]
    return "\n".join([sys.platform, platform.machine(), level(), *lines, _llvm_version()])


def _llvm_version() -> str:
    file = llvmlite_file()
    if file is None:
        return "none"
    path = file.parent / "_version.py"
    if path.exists():
        return path.read_text(encoding="utf-8")
    return str(import_module("llvmlite").__version__)  # frozen: there are no sources on disk


def _has(feature: str) -> bool:
    """Whether the processor that is compiled for has a feature."""
    chosen = level()
    return feature in _LEVELS[chosen] if chosen else _host_has(feature)


def _host_has(feature: str) -> bool:
    info = _cpu_info()
    if info:
        return feature in info.get("flags", info.get("Features", "")).split()
    return llvm().has_feature(feature)  # type: ignore[no-any-return]


def vector_bits() -> int:
    """The width of the vectors that loops are compiled for."""
    return machine().vector_bits


def vector_registers(bits: int) -> int:
    """The vector registers of a width: AVX-512 and NEON (128 bits) have 32; AVX has 16, as have
    pairs of those of NEON."""
    return 16 if bits == 256 else 32


@cache
def has_fma() -> bool:
    """Whether this machine multiplies and adds with one instruction and one rounding."""
    return platform.machine() in ("aarch64", "arm64") or _has("fma")


@cache
def has_bfloat16_dot() -> bool:
    """Whether this machine adds two products of bfloat16 to a float32 with one instruction, in
    registers of 512 bits."""
    # Linux and LLVM spell it differently.
    return vector_bits() == 512 and (_has("avx512_bf16") or _has("avx512bf16"))


# -- model --------------------------------------------------------------------------------------


@cache
def machine() -> MachineModel:
    """The model of this machine, the same for the whole process."""
    bits = 512 if _has("avx512f") else 256
    return read_model(_CPU)._replace(vector_bits=bits)


def read_model(cpu: Path) -> MachineModel:
    """The model of a processor that sysfs describes in a folder; what it does not report is taken
    from sysconf if the folder has no caches at all, else from the defaults."""
    found: dict[str, int] = {"page_bytes": mmap.PAGESIZE}
    for cache_folder in sorted(cpu.glob("cache/index*")):
        with suppress(OSError, ValueError):
            found |= _sysfs_cache(cache_folder, cpu)
    if len(found) == 1:
        found |= _sysconf_caches()
    if found.get("line_bytes", 0) not in _LINES:
        found.pop("line_bytes", None)
    return MachineModel()._replace(**{name: size for name, size in found.items() if size > 0})


def _sysfs_cache(folder: Path, cpu: Path) -> dict[str, int]:
    """The fields of the model that one cache determines."""
    level, kind = int(_read(folder / "level")), _read(folder / "type")
    if kind == "Instruction" or level > 3:
        return {}
    found = {f"l{level}_bytes": _size(_read(folder / "size"))}
    if level < 3:
        found[f"l{level}_bytes"] //= _cores_sharing(folder, cpu)
    if level == 1:
        with suppress(OSError, ValueError):
            found["l1_ways"] = int(_read(folder / "ways_of_associativity"))
        with suppress(OSError, ValueError):
            found["line_bytes"] = int(_read(folder / "coherency_line_size"))
    return found


def _cores_sharing(folder: Path, cpu: Path) -> int:
    """How many cores share a cache; hardware threads of one core count once."""
    try:
        sharing = sum(_numbers(_read(folder / "shared_cpu_list")))
        siblings = sum(_numbers(_read(cpu / "topology" / "thread_siblings_list")))
    except (OSError, ValueError):
        return 1
    return max(sharing // max(siblings, 1), 1)


def _numbers(ranges: str) -> Iterator[int]:
    """How many numbers each part of a list such as ``0-3,8`` has."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield int(last or first) - int(first) + 1


def _size(text: str) -> int:
    """The bytes of a size such as ``32K``."""
    unit = _UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def _sysconf_caches() -> dict[str, int]:
    """What the C library of Linux reports of caches; other systems number their names otherwise."""
    found = {}
    if sys.platform == "linux":
        for field, name in _SYSCONF.items():
            with suppress(OSError, ValueError):
                found[field] = os.sysconf(name)
    return found
