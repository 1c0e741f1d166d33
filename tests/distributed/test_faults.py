"""Ranks that fail, leave, sleep or are killed: the job ends with a message, and soon."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .launching import ROOT, environment, mpiexec, run

BEGIN = """
import os, signal, sys, time
import evergrad as eg, evergrad.distributed as dist
dist.init_process_group()
rank, x = dist.get_rank(), eg.ones(2)
dist.all_reduce(x); dist.group.WORLD.timeout = 2
"""
# A job that does not end. Starting one takes a second, or some on a busy machine.
LIMIT = 180


def failing(code: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    done = run(ranks, "-c", BEGIN + code, timeout=LIMIT)
    assert done.returncode != 0, done.stdout
    return done


def test_a_rank_that_skips_a_collective() -> None:
    done = failing("if rank == 0: dist.all_reduce(x)")
    assert "rank 0: all_reduce(float32[2], op=SUM) at <string>:7" in done.stderr
    assert "rank 1: has left" in done.stderr


def test_a_rank_that_sleeps() -> None:
    done = failing("if rank == 1: time.sleep(1000)\ndist.all_reduce(x)", ranks=3)
    assert "did not complete within its time limit" in done.stderr
    assert "rank 1: is in no collective; its program is at <string>:7" in done.stderr


def test_a_rank_that_waits_for_another_group() -> None:
    done = failing(
        "pair = dist.new_group([0, 1])\n"
        "if rank == 1: dist.all_reduce(x, group=pair)\nelse: dist.barrier()"
    )
    assert "barrier() at <string>:9" in done.stderr and "waits for" in done.stderr
    assert "all_reduce(float32[2], op=SUM) at <string>:8" in done.stderr


def test_limits_of_single_calls() -> None:
    late = "if rank == 1: time.sleep(1000)\nstart = time.monotonic()\n"
    for call in (
        "dist.monitored_barrier(timeout=3)",
        "dist.all_reduce(x, async_op=True).wait(timeout=3)",
    ):
        begin = BEGIN.replace("timeout = 2", "timeout = 1000")
        done = run(2, "-c", begin + late + call, timeout=LIMIT)
        assert done.returncode != 0 and "within its time limit" in done.stderr
        assert "rank 1: is in no collective; its program is at <string>:7" in done.stderr


def test_a_message_that_is_not_sent() -> None:
    done = failing("if rank == 1: dist.recv(x, 0)\nelse: time.sleep(1000)")
    assert "recv(float32[2], src=0, tag=0) at <string>:7" in done.stderr


def test_a_rank_that_raises() -> None:
    done = failing("if rank == 1: raise ValueError('of rank 1')\ntime.sleep(1000)")
    assert "ValueError: of rank 1" in done.stderr and done.returncode == 1


def test_output_before_an_error_is_complete() -> None:
    """The launcher has read it all when the ranks are ended."""
    done = failing(
        "if rank == 1:\n    print('o' * 60_000 + 'end', flush=True)\n"
        "    raise ValueError('e' * 60_000 + 'end')\ntime.sleep(1000)"
    )
    assert "o" * 60_000 + "end" in done.stdout and "e" * 60_000 + "end" in done.stderr


def test_a_thread_that_raises() -> None:
    done = failing(
        "import threading\ndef fail(): raise ValueError('in a thread')\n"
        "threading.Thread(target=fail).start()\ntime.sleep(1000)"
    )
    assert "ValueError: in a thread" in done.stderr


def test_a_rank_that_fails_before_the_world_is_made() -> None:
    code = "import os\nif os.environ['PMI_RANK'] == '1': raise ValueError('early')\n" + BEGIN
    done = run(2, "-c", code, timeout=LIMIT, EVERGRAD_DISTRIBUTED_TIMEOUT="3")
    assert done.returncode != 0 and "ValueError: early" in done.stderr


@pytest.mark.parametrize("code", [3, 77])
def test_exit_codes(code: int) -> None:
    done = run(2, "-c", BEGIN + f"sys.exit({code} if rank == 1 else 0)", timeout=LIMIT)
    assert done.returncode == code


def test_a_clean_end() -> None:
    done = run(2, "-c", BEGIN + "print('done')", timeout=LIMIT)
    assert done.returncode == 0 and done.stdout.count("done") == 2 and not done.stderr


def test_a_killed_rank_ends_the_job() -> None:
    done = failing(
        "if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nwhile True: dist.all_reduce(x)"
    )
    assert "signal 9" in done.stdout + done.stderr


def test_an_interrupt_ends_all_ranks() -> None:
    # One write per line: the launcher mixes what ranks write in pieces.
    loop = BEGIN + "os.write(1, b'%d\\n' % os.getpid())\nwhile True: dist.all_reduce(x)"
    job = subprocess.Popen(
        [mpiexec(), "-n", "2", sys.executable, "-c", loop], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        assert job.stdout is not None
        pids = [int(job.stdout.readline()) for _ in range(2)]
        time.sleep(random.random() * 0.2)
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=LIMIT)
    finally:
        job.kill()
    assert job.returncode != 0
    end = time.monotonic() + LIMIT
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_program_for_torchrun_runs_unchanged() -> None:
    mpiexec()
    program = str(ROOT / "tests/distributed/programs/torchrun.py")
    done = launched("-n", "2", "--as-torch", program)
    assert done.returncode == 0, done.stderr
    # What PyTorch 2.13 prints under torchrun --nproc_per_node 2.
    assert done.stdout == "library torch ranks 2 local 0 loss 0.949984\n"


@pytest.mark.parametrize("rank, number", [(1, 9), (0, 9), (1, 11), (1, 6), (0, 15)])
def test_the_launcher_names_a_rank_that_was_killed(tmp_path: Path, rank: int, number: int) -> None:
    """Not one of those which mpiexec killed then, and which it may see first."""
    mpiexec()
    program = tmp_path / "program.py"
    program.write_text(
        f"{BEGIN}if rank == {rank}: os.kill(os.getpid(), {number})\ntime.sleep(1000)"
    )
    done = launched("-n", "2", str(program))
    assert done.returncode == number, done.stderr
    assert f"rank {rank} was killed by signal {number}" in done.stderr


@pytest.mark.parametrize("rank", [0, 1])
def test_the_launcher_ends_with_the_code_of_the_rank_that_failed(tmp_path: Path, rank: int) -> None:
    mpiexec()
    program = tmp_path / "program.py"
    program.write_text(f"{BEGIN}if rank == {rank}: os._exit(3)\ntime.sleep(1000)")
    done = launched("-n", "2", str(program))
    assert done.returncode == 3, done.stderr
    assert "was killed" not in done.stderr


def test_ranks_end_with_the_launcher(tmp_path: Path) -> None:
    """Those of mpiexec and the processes below them."""
    mpiexec()
    program = tmp_path / "program.py"
    program.write_text(BEGIN + "print(os.getpid(), os.getppid(), flush=True)\ntime.sleep(1000)")
    job = subprocess.Popen(
        [sys.executable, "-m", "evergrad", "launch", "-n", "2", str(program)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        assert job.stdout is not None
        pids = [int(pid) for _ in range(2) for pid in job.stdout.readline().split()]
        for pid in children_of(job.pid):  # mpiexec
            os.kill(pid, signal.SIGKILL)
        job.communicate(timeout=LIMIT)
    finally:
        job.kill()
    end = time.monotonic() + LIMIT
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.05)


def children_of(process: int) -> list[int]:
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def test_the_launcher_ends_when_a_program_cannot_begin(tmp_path: Path) -> None:
    mpiexec()
    program = tmp_path / "program.py"
    program.write_text("import os\nif os.environ['RANK'] == '1': import no_such_module\n" + BEGIN)
    done = launched("-n", "2", str(program))
    assert done.returncode == 1 and "no_such_module" in done.stderr


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evergrad", "launch", *words], capture_output=True, text=True,
        timeout=LIMIT, env=environment(), check=False,
    )  # fmt: skip
