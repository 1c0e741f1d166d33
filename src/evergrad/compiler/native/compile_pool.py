"""Processes that compile, so that LLVM is not in this one and all processors are used.

Workers (:mod:`.native.compile_worker`) are started when texts wait, one for each processor at most,
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

# With as many the longest text takes longer than its share of all. Each has tens of megabytes.
MOST = 4
# Workers that had nothing to do for so many seconds end.
IDLE = 5.0
# The program of a worker. Its folder may be inside a zip file, from which no script can start.
_START = "import sys; sys.path += sys.argv[1:]; import compile_worker; compile_worker.main()"
# A text takes seconds at most; a worker that takes longer than this is not waited for.
PATIENCE = 120.0


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
    """A text that waits; long ones go first, since they take longest."""

    order: tuple[int, int]
    text: str
    keep: Callable[[bytes], object]
    answer: Future[bytes | None]


class Workers:
    """At most so many processes; ``compile`` may be called by any thread."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most or min(MOST, processors())
        self.changed = threading.Condition()  # may be taken again by the thread that has it
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.jobs: list[_Job] = []
        self.count = 0
        self.threads: list[threading.Thread] = []
        # How many threads take jobs, and how many of these have none.
        self.taking = self.idle = 0
        self.processes: list[Popen[bytes]] = []
        self.has_failed = False

    def compile(
        self, text: str, keep: Callable[[bytes], object] = lambda code: None
    ) -> Future[bytes | None]:
        """Object code, some time; ``None`` if it has to be made in another way. It is given to
        ``keep`` before, also if nobody waits for it any more."""
        answer: Future[bytes | None] = Future()
        with self.changed:
            if self.has_failed:
                answer.set_result(None)
                return answer
            self.count += 1
            heapq.heappush(self.jobs, _Job((-len(text), self.count), text, keep, answer))
            if len(self.jobs) > self.idle and self.taking < self.most:
                self._take_more()
            self.changed.notify()
        return answer

    def _take_more(self) -> None:
        """Have one more thread that takes jobs."""
        thread = threading.Thread(target=self._speak, daemon=True, name="evergrad-compile")
        try:
            thread.start()
        except RuntimeError:  # too many threads, or this process is about to end
            self._fail()
        else:
            self.taking += 1
            self.threads.append(thread)

    def _speak(self) -> None:
        """Give jobs to one worker as long as there are any."""
        job = None
        try:
            with self._started() as process:
                while (job := self._next()) is not None:
                    code = _ask(process, job.text)
                    if code is not None:
                        job.keep(code)
                    job.answer.set_result(code)
        except Exception:  # whatever it is, nobody must wait for an answer
            self._fail(job)
        finally:
            with self.changed:
                self.threads.remove(threading.current_thread())

    @contextlib.contextmanager
    def _started(self) -> Iterator[Popen[bytes]]:
        """A worker, for which is waited at the end."""
        arguments = command()
        with self.changed:
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
            with self.changed:
                self.processes.remove(process)

    def _next(self) -> _Job | None:
        """The next job; ``None`` if there was none for long, or is nobody to wait for it."""
        with self.changed:
            self.idle += 1
            self.changed.wait_for(lambda: self.jobs or self.has_failed, IDLE)
            self.idle -= 1
            if self.jobs:
                return heapq.heappop(self.jobs)
            self.taking -= 1
            return None

    def _fail(self, job: _Job | None = None) -> None:
        """Nobody waits for workers any more."""
        with self.changed:
            self.has_failed = True
            left, self.jobs = self.jobs, []
            self.changed.notify_all()
        for one in [*left, *([] if job is None else [job])]:
            one.answer.set_result(None)

    def close(self) -> None:
        """End all workers now, and start no more."""
        self._fail()
        with self.changed:
            threads = list(self.threads)
            for process in self.processes:
                process.kill()
        for thread in threads:
            thread.join(PATIENCE)

    def forget(self) -> None:
        """In a forked child: the workers and the threads are those of the parent."""
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.returncode = 0  # not ours to wait for
        self.changed = threading.Condition()
        self._begin_anew()


def _ask(process: Popen[bytes], text: str) -> bytes | None:
    """What a worker answers; ``None`` if LLVM refuses the text."""
    assert process.stdin is not None
    data = text.encode()
    message = memoryview(compile_worker.LENGTH.pack(len(data)) + data)
    while message:
        message = message[process.stdin.write(message) :]
    deadline = time.monotonic() + PATIENCE
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


WORKERS = Workers()
atexit.register(WORKERS.close)
# Nobody forks while a worker is being started: the child would keep its pipes.
fork.register(
    "compile workers",
    before=lambda: WORKERS.changed.acquire(),
    after_in_parent=lambda: WORKERS.changed.release(),
    after_in_child=WORKERS.forget,
)
