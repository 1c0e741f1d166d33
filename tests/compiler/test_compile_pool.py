"""Processes that compile for this one: what they give, how they end, and doing without them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evergrad import config
from evergrad.compiler.native import compile_pool, disk_cache, jit, llvm_backend, loader
from evergrad.compiler.native.compile_pool import CompilePool

pytestmark = pytest.mark.skipif(not loader.can_load(), reason="LLVM stays in this process")


def text_of(answer: int, calls: int = 0) -> str:
    lines = "".join(f"  %x{n} = mul i64 {n}, {answer}\n" for n in range(calls))
    return f"define i64 @answer() {{\n{lines}  ret i64 {answer}\n}}\n"


@pytest.fixture
def own() -> Iterator[CompilePool]:
    made = CompilePool(2)
    yield made
    made.close()
    assert not made.processes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def is_there(process: int) -> bool:
    """Whether a process is running, or is dead and not reaped."""
    return Path(f"/proc/{process}").exists()


def comes_true(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def run(program: str, folder: Path, **environment: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120,
        env={**os.environ, "EVERGRAD_KERNEL_CACHE": str(folder), **environment}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_they_give_what_llvm_gives_here(own: CompilePool) -> None:
    texts = [text_of(n, calls=n % 7) for n in range(12)]
    answers = [own.compile(text) for text in texts]
    found = [answer.result(timeout=60) for answer in answers]
    assert found == [llvm_backend.object_code(text) for text in texts]
    assert 1 <= len(own.processes) <= 2


def test_a_dropped_request_is_cached(folder: Path) -> None:
    text = text_of(77)
    jit.compile_ir_async(text)
    kept = folder / jit._file_name(text)
    assert comes_true(kept.exists)
    assert disk_cache.read(kept, jit._KIND) == llvm_backend.object_code(text)


def test_ir_that_llvm_rejects_harms_no_other(own: CompilePool) -> None:
    wrong, right = own.compile("define void @f( {"), own.compile(text_of(3))
    assert wrong.result(timeout=60) is None
    assert right.result(timeout=60) == llvm_backend.object_code(text_of(3))
    assert not own.has_failed


def test_idle_ones_end(own: CompilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_pool, "IDLE_SECONDS", 0.05)
    assert own.compile(text_of(4)).result(timeout=60)
    process = own.processes[0].pid
    assert comes_true(lambda: not own.processes and not is_there(process))
    assert own.compile(text_of(5)).result(timeout=60)  # others are started
    assert own.processes[0].pid != process


def test_a_worker_that_dies_disables_the_pool(own: CompilePool) -> None:
    assert own.compile(text_of(6)).result(timeout=60)
    process = own.processes[0].pid
    os.kill(process, signal.SIGKILL)
    assert own.compile(text_of(7)).result(timeout=60) is None
    assert own.has_failed
    assert comes_true(lambda: not is_there(process))
    assert own.compile(text_of(8)).result(timeout=60) is None


def test_one_that_does_not_answer_is_not_waited_for(
    own: CompilePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_pool, "REPLY_TIMEOUT", 0.1)
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(compile_pool, "command", lambda: sleeping)
    answers = [own.compile(text_of(n)) for n in range(3)]
    assert [answer.result(timeout=60) for answer in answers] == [None] * 3
    assert comes_true(lambda: not own.processes)


@pytest.mark.parametrize(
    "command", [None, ["/no/such/program"], [sys.executable, "-c", "raise SystemExit(3)"]]
)
def test_without_workers_this_process_compiles(
    own: CompilePool, folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str] | None
) -> None:
    monkeypatch.setattr(compile_pool, "COMPILE_POOL", own)
    monkeypatch.setattr(compile_pool, "command", lambda: command)
    find = jit.addresses_in(text_of(41), ["answer"])
    assert jit.function_of(find["answer"], result=ctypes.c_int64)() == 41
    assert not jit.uses_compile_pool()
    (file,) = folder.iterdir()
    assert file.read_bytes().endswith(llvm_backend.object_code(text_of(41)))


def test_many_threads_request(own: CompilePool) -> None:
    found: dict[int, Any] = {}

    def request(number: int) -> None:
        found[number] = own.compile(text_of(number)).result(timeout=60)

    threads = [threading.Thread(target=request, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: llvm_backend.object_code(text_of(number)) for number in range(8)}


def test_interrupts_from_the_keyboard_do_not_reach_them(own: CompilePool) -> None:
    assert own.compile(text_of(9)).result(timeout=60)
    assert os.getsid(own.processes[0].pid) != os.getsid(0)


STEP = """
import os, sys
import evergrad as eg
from evergrad.compiler.native import compile_pool

def step(x):
    return ((x @ x.t()).tanh() + x.exp().sum()).mean()

def gradient():
    x = eg.arange(12.0).reshape(3, 4).requires_grad_()
    y = eg.compile(step)(x)
    y.backward()
    return y.item().hex(), x.grad.tolist()
"""


def test_llvm_stays_outside(tmp_path: Path) -> None:
    """In a process that compiles, in one that finds everything made, and with the same results as
    in one that has LLVM in it."""
    program = STEP + (
        "found = gradient()\n"
        "eg.nn.functional.gelu(eg.ones(8192))\n"
        "print('llvmlite' in sys.modules, found)\n"
    )
    cold, warm = run(program, tmp_path), run(program, tmp_path)
    assert cold.startswith("False")
    assert warm == cold
    inside = run(program, tmp_path / "inside", EVERGRAD_COMPILE_IN_PROCESS="1")
    assert inside == cold.replace("False", "True")


def test_they_end_with_their_process(tmp_path: Path) -> None:
    program = STEP + "gradient()\nprint(*[p.pid for p in compile_pool.COMPILE_POOL.processes])\n"
    processes = [int(word) for word in run(program, tmp_path).split()]
    assert processes
    assert not any(map(is_there, processes))


def test_a_process_may_end_while_they_start(tmp_path: Path) -> None:
    assert run(STEP + "eg.compile(step).plan(eg.ones(3, 4))\n", tmp_path) == ""


def test_they_end_when_their_process_is_killed(tmp_path: Path) -> None:
    program = STEP + (
        "gradient()\n"
        "print(*[p.pid for p in compile_pool.COMPILE_POOL.processes], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
        env={**os.environ, "EVERGRAD_KERNEL_CACHE": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert killed.returncode == -9
    processes = [int(word) for word in killed.stdout.split()]
    assert processes
    assert comes_true(lambda: not any(is_running(process) for process in processes))


def is_running(process: int) -> bool:
    """Whether a process, perhaps never reaped, is running."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_forked_process_has_workers_of_its_own(tmp_path: Path) -> None:
    program = STEP + (
        "eg.set_num_threads(1)\n"
        "first = gradient()\n"
        "mine = {p.pid for p in compile_pool.COMPILE_POOL.processes}\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    fresh = not compile_pool.COMPILE_POOL.processes\n"
        "    y = eg.compile(lambda x: (x.exp() / 3).cos().sum())(eg.ones(7, 9))\n"
        "    theirs = {p.pid for p in compile_pool.COMPILE_POOL.processes}\n"
        "    compile_pool.COMPILE_POOL.close()\n"
        "    os._exit(0 if fresh and theirs and not theirs & mine else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "eg.compile(lambda x: (x.sin() / 5).exp().sum())(eg.ones(5, 3))\n"
        "assert not compile_pool.COMPILE_POOL.has_failed\n"
        "print(first == gradient())\n"
    )
    assert run(program, tmp_path) == "True\n"
