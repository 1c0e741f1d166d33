"""Processes that compile, so that LLVM is not in this one and all processors are used.

CompilePool (:mod:`.native.compile_worker`) are started when texts wait, one for each processor at limit,
and end when nothing was to be done for some seconds, or with this process. A thread speaks with
each. If one cannot be started, dies or does not answer, none is tried again: texts get no object
code then, and who wants it has to compile by himself.
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
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import NamedTuple

from evergrad.compiler.native import compile_worker
from evergrad.core import fork
from evergrad.core.settings import processors

# With as many the longest ir takes longer than its share of all. Each has tens of megabytes.
MAX_WORKERS = 4
# CompilePool that had nothing to do for so many seconds end.
IDLE_SECONDS = 5.0
# The program of a worker. Its folder may be inside a zip file, from which no script can start.
_START = "import sys; sys.path += sys.argv[1:]; import compile_worker; compile_worker.main()"
# A ir takes seconds at limit; a worker that takes longer than this is not waited for.
REPLY_TIMEOUT = 120.0


@cache
def command() -> list[str] | None:
    """What starts a worker; ``None`` where Python does not know how it was started itself, and in a
    frozen application, whose executable is not Python."""
    found = find_spec("llvmlite")
    is_python = Path(sys.executable or "").name.startswith("python")
    is_python = is_python and not getattr(sys, "frozen", False)
    if not is_python or found is None or found.origin is None:
        return None
    folders = [str(Path(found.origin).parents[1]), str(Path(compile_worker.__file__).parent)]
    keep_nothing = ["-B"] if sys.dont_write_bytecode else []
    return [sys.executable, "-I", "-S", *keep_nothing, "-c", _START, *folders]


class _Job(NamedTuple):
    """A ir that waits; long ones go first, since they take longest."""

    order: tuple[int, int]
    ir: str
    keep: Callable[[bytes], object]
    answer: Future[bytes | None]


class CompilePool:
    """At limit so many processes; ``compile`` may be called by any thread."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or min(MAX_WORKERS, processors())
        self.condition = threading.Condition()  # may be taken again by the thread that has it
        self._reset()

    def _reset(self) -> None:
        self.jobs: list[_Job] = []
        self.count = 0
        self.threads: list[threading.Thread] = []
        # How many threads take jobs, and how many of these have none.
        self.active = self.idle = 0
        self.processes: list[Popen[bytes]] = []
        self.has_failed = False

    def compile(
        self, ir: str, keep: Callable[[bytes], object] = lambda code: None
    ) -> Future[bytes | None]:
        """Object code, some time; ``None`` if it has to be made in another way. It is given to
        ``keep`` before, also if nobody waits for it any more."""
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
        """Have one more thread that takes jobs."""
        thread = threading.Thread(target=self._run_worker, daemon=True, name="evergrad-compile")
        try:
            thread.start()
        except RuntimeError:  # too many threads, or this process is about to end
            self._fail()
        else:
            self.active += 1
            self.threads.append(thread)

    def _run_worker(self) -> None:
        """Give jobs to one worker as long as there are any."""
        job = None
        try:
            with self._started() as process:
                while (job := self._next()) is not None:
                    code = _request_object(process, job.ir)
                    if code is not None:
                        job.keep(code)
                    job.answer.set_result(code)
        except Exception:  # whatever it is, nobody must wait for an answer
            self._fail(job)
        finally:
            with self.condition:
                self.threads.remove(threading.current_thread())

    @contextlib.contextmanager
    def _started(self) -> Iterator[Popen[bytes]]:
        """A worker, for which is waited at the end."""
        arguments = command()
        with self.condition:
            if arguments is None or self.has_failed:
                raise OSError("no worker is wanted, or none can be started")
            # In a session of its own: an interrupt from the keyboard is for this process alone.
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
        """The next job; ``None`` if there was none for long, or is nobody to wait for it."""
        with self.condition:
            self.idle += 1
            self.condition.wait_for(lambda: self.jobs or self.has_failed, IDLE_SECONDS)
            self.idle -= 1
            if self.jobs:
                return heapq.heappop(self.jobs)
            self.active -= 1
            return None

    def _fail(self, job: _Job | None = None) -> None:
        """Nobody waits for workers any more."""
        with self.condition:
            self.has_failed = True
            left, self.jobs = self.jobs, []
            self.condition.notify_all()
        for one in [*left, *([] if job is None else [job])]:
            one.answer.set_result(None)

    def close(self) -> None:
        """End all workers now, and start no more."""
        self._fail()
        with self.condition:
            threads = list(self.threads)
            for process in self.processes:
                process.kill()
        for thread in threads:
            thread.join(REPLY_TIMEOUT)

    def reset_in_child(self) -> None:
        """In a forked child: the workers and the threads are those of the parent."""
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.returncode = 0  # not ours to wait for
        self.condition = threading.Condition()
        self._reset()


def _request_object(process: Popen[bytes], ir: str) -> bytes | None:
    """What a worker answers; ``None`` if LLVM refuses the ir."""
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
            raise TimeoutError("a worker does not answer")
        part = process.stdout.read(length - len(found))
        if not part:
            raise EOFError("a worker has ended")
        found += part
    return bytes(found)


COMPILE_POOL = CompilePool()
atexit.register(COMPILE_POOL.close)
# Nobody forks while a worker is being started: the child would keep its pipes.
fork.register(
    "compile workers",
    before=lambda: COMPILE_POOL.condition.acquire(),
    after_in_parent=lambda: COMPILE_POOL.condition.release(),
    after_in_child=COMPILE_POOL.reset_in_child,
)
