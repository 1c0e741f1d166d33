"""Starts programs on several ranks, and reads what they found."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import pytest

import evergrad

ROOT = Path(__file__).parents[2]


def mpiexec() -> str:
    """The launcher beside this Python, or of the system; the test is skipped without one."""
    own = Path(sysconfig.get_path("scripts")) / "mpiexec"
    found = str(own) if own.exists() else shutil.which("mpiexec")
    if found is None or find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install 'evergrad[mpi]'")
    return found


def environment(**extra: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(evergrad.__file__).parents[1]), str(ROOT)])
    # Long enough for a rank that compiles while another one has its programs, on a busy machine.
    return {**os.environ, "PYTHONPATH": path, "EVERGRAD_DISTRIBUTED_TIMEOUT": "180", **extra}


def run(
    ranks: int, *command: str, timeout: float = 300, **extra: str
) -> subprocess.CompletedProcess[str]:
    """A Python command on several ranks."""
    return subprocess.run(
        [mpiexec(), "-n", str(ranks), sys.executable, *command],
        capture_output=True, text=True, timeout=timeout, env=environment(**extra), check=False,
    )  # fmt: skip


def once(name: str, compute: Callable[[], Any]) -> Any:
    """What a function gives, as JSON: computed once, also if several processes run the tests."""
    run_of_workers = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run_of_workers is None:
        return compute()
    folder = Path(gettempdir()) / f"evergrad-{run_of_workers}"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(json.dumps(compute()))
    return json.loads(path.read_text())


@cache
def results(ranks: int, program: str) -> dict[str, list[str]]:
    """The errors of each check of a program, by rank; started once for all its tests."""
    found: dict[str, list[str]] = once(f"{program}-{ranks}", lambda: _results(ranks, program))
    return found


def _results(ranks: int, program: str) -> dict[str, list[str]]:
    with TemporaryDirectory() as folder:
        done = run(ranks, "-m", "tests.distributed.checks", program, folder, timeout=600)
        paths = [Path(folder) / f"{rank}.json" for rank in range(ranks)]
        assert all(p.exists() for p in paths), f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        found = [json.loads(path.read_text()) for path in paths]
    assert done.returncode == 0, done.stderr
    return {name: [errors[name] for errors in found] for name in found[0]}
