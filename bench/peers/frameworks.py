"""What a framework costs before it computes anything: versions, import time, size on disk."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.peers import machine
from bench.peers.contenders import PEERS
from bench.peers.processes import PeerError, run_python

_TIMED_IMPORT = """
import importlib, sys, time
start = time.process_time()
for name in sys.argv[1:]:
    importlib.import_module(name)
print(time.process_time() - start)
"""


@dataclass(frozen=True)
class Framework:
    """One installed framework; ``import_seconds`` is processor time, which a busy machine disturbs
    least."""

    name: str
    version: str | None
    import_seconds: float | None
    installed_bytes: int | None
    reason: str = ""


def examine(peers: Iterable[str], repeats: int, timeout: float) -> list[Framework]:
    """The frameworks of these peers."""
    chosen = {PEERS[name].distribution: PEERS[name].modules for name in peers}
    return [_examine_one(name, modules, repeats, timeout) for name, modules in chosen.items()]


def _examine_one(name: str, modules: tuple[str, ...], repeats: int, timeout: float) -> Framework:
    try:
        times = [float(run_python(_TIMED_IMPORT, timeout, *modules)) for _ in range(repeats)]
    except PeerError as error:
        return Framework(name, None, None, None, error.reason)
    version = importlib.metadata.version(name)
    return Framework(name, version, statistics.median(times), machine.installed_bytes(name))


def describe_machine() -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "processors": machine.processors(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
