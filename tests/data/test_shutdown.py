"""How loading ends: on leaving the loop, at exit, on Ctrl-C, and when a process is killed.

Programs run in a process group of their own; afterwards the group must be empty.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evergrad
from evergrad.utils.data import DataLoader, Dataset

from .programs import many_workers

pytestmark = [
    many_workers,
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups on this system"),
]

PROLOGUE = """
import os, signal, sys, time
import evergrad
from evergrad.utils.data import DataLoader, Dataset
from evergrad.utils.data._utils import pool

pool._GRACE = 600  # who ends only because patience is lost does not end in time

class Slow(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return evergrad.full((20_000,), float(index))

def loader(seconds=0.01, **options):
    return DataLoader(Slow(seconds), None, num_workers=2, **options)
"""


class Program:
    """A Python program in a process group of its own."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROLOGUE + textwrap.dedent(code)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def wait_for(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.strip() == word, (line, self.process.communicate())

    def signal_group(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def finish(self, seconds: float = 30) -> tuple[int, str, str]:
        """Exit code, output and errors, once every process of the group is gone."""
        out, errors = self.process.communicate(timeout=seconds)
        deadline = time.monotonic() + seconds
        while self.alive():
            assert time.monotonic() < deadline, "a process of the group lives on"
            time.sleep(0.02)
        return self.process.returncode, out, errors

    def alive(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@pytest.fixture
def run() -> Iterator[Any]:
    started: list[Program] = []

    def start(code: str) -> Program:
        started.append(Program(code))
        return started[-1]

    yield start
    for program in started:
        if program.alive():
            program.signal_group(signal.SIGKILL)
        program.process.wait()


@pytest.mark.parametrize(
    "code",
    [
        "for batch in loader(): break",
        "iterator = iter(loader()); next(iterator)",
        "iterator = iter(loader()); next(iterator); sys.exit(0)",
        "keep = loader(persistent_workers=True); next(iter(keep))",
        "kept = [batch for batch, _ in zip(loader(), range(5))]",
        "iterator = iter(loader(0.2)); os.fork() or os._exit(0); next(iterator)",
    ],
    ids=["break", "held at exit", "sys.exit", "persistent", "batches held", "fork"],
)
def test_programs_end_by_themselves(code: str, run: Any) -> None:
    status, _, errors = run(code).finish()
    assert (status, errors) == (0, "")


def test_an_exception_in_the_loop_ends_the_program(run: Any) -> None:
    status, _, errors = run("for batch in loader(): raise ValueError('mine')").finish()
    assert status == 1 and errors.strip().endswith("ValueError: mine")


def test_exit_does_not_wait_for_a_worker_that_hangs(run: Any) -> None:
    status, _, errors = run("""
        pool._GRACE = 0.5
        iterator = iter(loader(600))
        time.sleep(0.2)
    """).finish()
    assert (status, errors) == (0, "")


@pytest.mark.parametrize("seconds", [0.01, 600], ids=["busy", "hanging"])
@pytest.mark.parametrize("persistent", [False, True])
def test_ctrl_c_ends_all_processes(seconds: float, persistent: bool, run: Any) -> None:
    program = run(f"""
        keep = loader({seconds}, persistent_workers={persistent})
        print("ready")
        for batch in keep:
            pass
    """)
    program.wait_for("ready")
    time.sleep(0.3)
    program.signal_group(signal.SIGINT)
    status, _, errors = program.finish()
    assert status == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # the workers do not add theirs


def test_ctrl_c_while_workers_start(run: Any) -> None:
    program = run("""
        print("ready")
        while True:
            for batch in loader(0): break
    """)
    program.wait_for("ready")
    time.sleep(0.25)
    program.signal_group(signal.SIGINT)
    status, _, errors = program.finish()
    assert status == -signal.SIGINT and errors.count("Traceback") == 1, errors


def test_a_program_that_handles_ctrl_c_keeps_its_workers(run: Any) -> None:
    program = run("""
        asked = []
        signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
        batches = iter(loader(0.02))
        print("ready")
        while not asked:
            next(batches)
        count = sum(1 for batch, _ in zip(batches, range(20)))
        print(count, len(asked))
    """)
    program.wait_for("ready")
    time.sleep(0.2)
    program.signal_group(signal.SIGINT)
    status, out, errors = program.finish()
    assert (status, out.split(), errors) == (0, ["20", "1"], "")


@pytest.mark.parametrize("seconds", [0.01, 600], ids=["busy", "hanging"])
def test_workers_do_not_outlive_a_killed_parent(seconds: float, run: Any) -> None:
    program = run(f"""
        first, second = iter(loader({seconds})), iter(loader({seconds}))
        print("ready")
        time.sleep(600)
    """)
    program.wait_for("ready")
    os.kill(program.process.pid, signal.SIGKILL)
    status, _, _ = program.finish()
    assert status == -signal.SIGKILL


def test_an_iterator_that_is_dropped_ends_its_workers_while_another_goes_on() -> None:
    class Numbers(Dataset[int]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            return bytes(200_000)  # more than the pipe takes, so that workers wait to send

    first: Any = iter(DataLoader(Numbers(), None, num_workers=1, prefetch_factor=4))
    next(first)
    second = iter(DataLoader(Numbers(), None, num_workers=1))
    (process,) = first._pool.processes
    del first
    assert process.exitcode == 0  # though the other worker has inherited the end of its pipe
    assert len(next(second)) == 200_000


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc to look into")
def test_memory_is_given_back_with_the_last_batch() -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("evergrad-batches")

    class Big(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return evergrad.ones(100_000)

    assert mapped() == 0
    kept = list(DataLoader(Big(), None, num_workers=1))
    assert mapped() > 0
    kept.clear()
    gc.collect()
    assert mapped() == 0
