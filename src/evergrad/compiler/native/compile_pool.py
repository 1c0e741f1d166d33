"""Compile pool: worker processes that compile in parallel, and keep LLVM out of this one.

Workers (:mod:`.native.compile_worker`) are started on demand, at most one for each processor, and
exit when idle for some seconds, or with this process. A thread serves each. If one cannot be
started, dies or does not reply, the pool is marked as failed: requests then yield no object code,
and the caller compiles in process.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import NamedTuple

from evergrad.compiler.native import compile_worker
from evergrad.compiler.native.target import level, llvmlite_file
from evergrad.core import fork
from evergrad.core.settings import processors

# More workers do not help: the longest module takes longer than its share. Each has tens of
# megabytes.
MAX_WORKERS = 4
# Idle workers exit after so many seconds.
IDLE_SECONDS = 5.0
# Entry point of a worker. Its folder may be inside a zip file, from which no script can start.
_START = (
    "import sys; sys.path += sys.argv[2:]; import compile_worker; compile_worker.main(sys.argv[1])"
)
# A module takes seconds at most; a worker that takes longer is taken for dead.
REPLY_TIMEOUT = 120.0


@cache
def command() -> list[str] | None:
    """The command that starts a worker; ``None`` where ``sys.executable`` is unknown, and in a
    frozen application, whose executable is not Python."""
    found = llvmlite_file()
    is_python = Path(sys.executable or "").name.startswith("python")
    is_python = is_python and not getattr(sys, "frozen", False)
    if not is_python or found is None:
        return None
    folders = [str(found.parents[1]), str(Path(compile_worker.__file__).parent)]
    keep_nothing = ["-B"] if sys.dont_write_bytecode else []
    return [sys.executable, "-I", "-S", *keep_nothing, "-c", _START, level(), *folders]


class _Job(NamedTuple):
    """A queued IR module; the longest goes first, since it takes longest."""

    order: tuple[int, int]
    ir: str
    keep: Callable[[bytes], object]
    answer: Future[bytes | None]


class CompilePool:
    """A pool of at most ``limit`` worker processes; ``compile`` is thread-safe."""

    active: int
    idle: int

    def __init__(self, limit: int | None = None) -> None:
        self.limit: int = limit or min(MAX_WORKERS, processors())
        self.condition: threading.Condition = threading.Condition()  # reentrant
        self._reset()

    def _reset(self) -> None:
        self.jobs: list[_Job] = []
        self.count: int = 0
        self.threads: list[threading.Thread] = []
        # The number of running threads, and how many of them are idle.
        self.active = self.idle = 0
        self.processes: list[Popen[bytes]] = []
        self.has_failed: bool = False

    def compile(
        self, ir: str, keep: Callable[[bytes], object] = lambda code: None
    ) -> Future[bytes | None]:
        """A future of the object code; ``None`` if the caller has to compile it. ``keep`` is called
        with it first, even if the future is dropped."""
        answer: Future[bytes | None] = Future()
        with self.condition:
            if self.has_failed:
                answer.set_result(None)
                return answer
            self.count += 1
            heapq.heappush(self.jobs, _Job((-len(ir), self.count), ir, keep, answer))
            if len(self.jobs) > self.idle and self.active < self.limit:
                self._add_thread()
            self.condition.notify()
        return answer

    def _add_thread(self) -> None:
        """Start one more thread that serves jobs."""
        thread = threading.Thread(target=self._run_worker, daemon=True, name="evergrad-compile")
        try:
            thread.start()
        except RuntimeError:  # too many threads, or this process is about to end
            if not self.active:
                self._fail()
        else:
            self.active += 1
            self.threads.append(thread)

    def _run_worker(self) -> None:
        """Send jobs to one worker process until the queue stays empty."""
        job = None
        try:
            with self._started() as process:
                while (job := self._next()) is not None:
                    code = _request_object(process, job.ir)
                    if code is not None:
                        job.keep(code)
                    job.answer.set_result(code)
        except Exception:  # in any case resolve all futures
            self._fail(job)
        finally:
            with self.condition:
                self.threads.remove(threading.current_thread())

    @contextlib.contextmanager
    def _started(self) -> Iterator[Popen[bytes]]:
        """A worker process, killed and reaped at exit."""
        arguments = command()
        with self.condition:
            if arguments is None or self.has_failed:
                raise OSError("the compile pool is closed, or no worker can be started")
            # In a session of its own, so that a keyboard interrupt reaches this process only.
            process = Popen(
                arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, bufsize=0,
                start_new_session=True,
            )  # fmt: skip
            self.processes.append(process)
        try:
            with process:
                try:
                    yield process
                finally:
                    process.kill()
        finally:
            with self.condition:
                self.processes.remove(process)

    def _next(self) -> _Job | None:
        """The next job; ``None`` after a timeout or when the pool has failed."""
        with self.condition:
            self.idle += 1
            self.condition.wait_for(lambda: self.jobs or self.has_failed, IDLE_SECONDS)
            self.idle -= 1
            if self.jobs:
                return heapq.heappop(self.jobs)
            self.active -= 1
            return None

    def _fail(self, job: _Job | None = None) -> None:
        """Mark the pool as failed, and resolve all futures with ``None``."""
        with self.condition:
            self.has_failed = True
            left, self.jobs = self.jobs, []
            self.condition.notify_all()
        for one in [*left, *([] if job is None else [job])]:
            one.answer.set_result(None)

    def close(self) -> None:
        """Kill all workers and start no more."""
        self._fail()
        with self.condition:
            threads = list(self.threads)
            for process in self.processes:
                process.kill()
        for thread in threads:
            thread.join(REPLY_TIMEOUT)

    def reset_in_child(self) -> None:
        """Reset in a forked child: workers and threads are the parent's."""
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.returncode = 0  # the parent reaps it
        self.condition = threading.Condition()
        self._reset()


def _request_object(process: Popen[bytes], ir: str) -> bytes | None:
    """A worker's reply; ``None`` if LLVM rejects the IR."""
    assert process.stdin is not None
    data = ir.encode()
    message = memoryview(compile_worker.LENGTH.pack(len(data)) + data)
    while message:
        message = message[process.stdin.write(message) :]
    deadline = time.monotonic() + REPLY_TIMEOUT
    reply = _receive(process, compile_worker.REPLY.size, deadline)
    is_made, length = compile_worker.REPLY.unpack(reply)
    code = _receive(process, length, deadline)
    return code if is_made else None


def _receive(process: Popen[bytes], length: int, deadline: float) -> bytes:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    found = bytearray()
    while len(found) < length:
        if not poll.poll(1000 * max(deadline - time.monotonic(), 0)):
            raise TimeoutError("a compile worker does not reply")
        part = process.stdout.read(length - len(found))
        if not part:
            raise EOFError("a compile worker has exited")
        found += part
    return bytes(found)


COMPILE_POOL = CompilePool()
atexit.register(COMPILE_POOL.close)
# No fork while a worker is being started: the child would inherit its pipes.
fork.register(
    "compile workers",
    before=lambda: COMPILE_POOL.condition.acquire(),
    after_in_parent=lambda: COMPILE_POOL.condition.release(),
    after_in_child=COMPILE_POOL.reset_in_child,
)
