"""What the machine says of a process: its processor time and others', memory, sizes on disk.

Everything here works without a framework, so that reading it changes no measurement.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# A turn is disturbed if others used more than this share of one processor, or if we got less than
# that share of one ourselves.
FOREIGN_SHARE = 0.05
OWN_SHARE = 0.85
# Fields of /proc/stat that are time in use: all but idle and iowait; guests are part of user.
_IN_USE = (0, 1, 2, 5, 6, 7)


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def pin_to(count: int) -> None:
    """Let this process and its threads run on ``count`` processors only."""
    if hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, allowed[:count])


# -- time ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """The time of some steps in a row, in seconds; ``foreign`` is what other processes used of all
    processors meanwhile (None where the system does not say)."""

    steps: int
    wall: float
    cpu: float
    foreign: float | None

    def disturbed(self) -> bool:
        """Whether somebody else's work shows in this time."""
        # The kernel counts in hundredths of a second: less than two of them tell nothing.
        foreign = self.foreign or 0.0
        if foreign > max(FOREIGN_SHARE * self.wall, 0.02):
            return True
        return self.cpu < OWN_SHARE * self.wall


class Watch:
    """A stopwatch that also reads processor time."""

    def __init__(self) -> None:
        self._busy = _busy_seconds()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def turn(self, steps: int) -> Turn:
        """The time since the watch was made."""
        wall = time.perf_counter() - self._wall
        cpu = time.process_time() - self._cpu
        busy = _busy_seconds()
        foreign = None
        if busy is not None and self._busy is not None:
            foreign = max(0.0, busy - self._busy - cpu)
        return Turn(steps, wall, cpu, foreign)


def _busy_seconds() -> float | None:
    """How long the processors of this machine were in use since it started, all together."""
    try:
        with open("/proc/stat") as file:
            fields = [int(word) for word in file.readline().split()[1:]]
    except OSError:
        return None
    return sum(fields[i] for i in _IN_USE) / os.sysconf("SC_CLK_TCK")


# -- memory --------------------------------------------------------------------------------------


def resident_bytes() -> int | None:
    """What this process holds in memory now."""
    return _status("VmRSS")


def peak_bytes() -> int | None:
    """The most it held since it started or since :func:`forget_peak`."""
    return _status("VmHWM")


def forget_peak() -> bool:
    """Start the peak anew; says whether the system lets us."""
    with suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
        return True
    return False


def _status(field: str) -> int | None:
    with suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


# -- disk ----------------------------------------------------------------------------------------


def installed_bytes(distribution: str) -> int | None:
    """A distribution on disk with all that it requires, each once; None if it is not installed."""
    found: dict[str, int] = {}
    waiting = [distribution]
    while waiting:
        name = _normalized(waiting.pop())
        if name in found:
            continue
        try:
            info = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other systems only
        found[name] = _own_bytes(name, info)
        waiting += _required(info.requires or ())
    return sum(found.values()) if found else None


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(requirements: Iterable[str]) -> list[str]:
    """The names in a list of requirements, without those of extras."""
    return [re.split(r"[^\w.-]", r.strip(), maxsplit=1)[0] for r in requirements
            if not re.search(r";.*\bextra\b", r)]  # fmt: skip


def _own_bytes(name: str, info: importlib.metadata.Distribution) -> int:
    paths = {Path(str(info.locate_file(file))) for file in info.files or ()}
    spec = importlib.util.find_spec(name.replace("-", "_"))
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        paths.update(Path(folder).rglob("*"))  # an editable installation lists no modules
    files = {path.resolve() for path in paths if "__pycache__" not in path.parts}
    return sum(path.stat().st_size for path in files if path.is_file())
