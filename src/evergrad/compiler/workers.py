"""Processes that compile, so that LLVM is not in this one and all processors are used.

Workers (:mod:`.worker`) are started when texts wait, one for each processor at most, and end when
nothing was to be done for some seconds, or with this process. A thread speaks with each. One that
cannot be started, dies or does not answer is not tried again: texts get no object code then, and
whoever wants it compiles by himself.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import os
import select
import sys
import threading
import time
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import NamedTuple

from evergrad.compiler import worker

# Workers that had nothing to do for so many seconds end.
IDLE = 5.0
# A text takes seconds at most; a worker that takes longer than this is not waited for.
PATIENCE = 120.0


def command() -> list[str] | None:
    """What starts a worker; ``None`` where Python does not know how it was started itself."""
    found = find_spec("llvmlite")
    is_python = Path(sys.executable or "").name.startswith("python")
    if not is_python or found is None or found.origin is None:
        return None
    folders = [str(Path(found.origin).parents[1]), str(Path(worker.__file__).parent)]
    return [sys.executable, "-I", "-S", worker.__file__, *folders]


class _Job(NamedTuple):
    """A text that waits; long ones go first, since they take longest."""

    order: tuple[int, int]
    text: str
    answer: Future[bytes | None]


class Workers:
    """At most so many processes; ``compile`` may be called by any thread."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most or len(os.sched_getaffinity(0))
        self.changed = threading.Condition()
        self.jobs: list[_Job] = []
        self.count = 0
        self.threads = 0
        self.idle = 0
        self.processes: list[Popen[bytes]] = []
        self.has_failed = False

    def compile(self, text: str) -> Future[bytes | None]:
        """Object code, some time; ``None`` if it has to be made in another way."""
        answer: Future[bytes | None] = Future()
        with self.changed:
            if self.has_failed:
                answer.set_result(None)
                return answer
            self.count += 1
            heapq.heappush(self.jobs, _Job((-len(text), self.count), text, answer))
            if len(self.jobs) > self.idle and self.threads < self.most:
                self.threads += 1
                name = "evergrad-compile"
                threading.Thread(target=self._speak, daemon=True, name=name).start()
            self.changed.notify()
        return answer

    def _speak(self) -> None:
        """Give jobs to one worker as long as there are any."""
        process = job = None
        try:
            process = self._start()
            while (job := self._next()) is not None:
                job.answer.set_result(_ask(process, job.text))
        except (OSError, EOFError, TimeoutError):
            self._fail(job)
        finally:
            if process is not None:
                self._end(process)

    def _start(self) -> Popen[bytes]:
        arguments = command()
        if arguments is None:
            raise OSError("no interpreter to start")
        # In a session of its own: an interrupt from the keyboard is for this process alone.
        process = Popen(
            arguments, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, bufsize=0, start_new_session=True
        )
        with self.changed:
            self.processes.append(process)
        return process

    def _next(self) -> _Job | None:
        with self.changed:
            self.idle += 1
            try:
                while not self.jobs:
                    if not self.changed.wait(IDLE) and not self.jobs:
                        self.threads -= 1
                        return None
                return heapq.heappop(self.jobs)
            finally:
                self.idle -= 1

    def _fail(self, job: _Job | None) -> None:
        """Nobody waits for workers any more."""
        with self.changed:
            self.has_failed = True
            self.threads -= 1
            left, self.jobs = self.jobs, []
        for one in [*left, *([] if job is None else [job])]:
            one.answer.set_result(None)

    def _end(self, process: Popen[bytes]) -> None:
        with self.changed:
            if process not in self.processes:
                return
            self.processes.remove(process)
        process.kill()
        with process:  # closes the pipes and waits
            pass

    def close(self) -> None:
        """End all workers now."""
        for process in list(self.processes):
            self._end(process)

    def forget(self) -> None:
        """In a forked child: the workers and the threads are those of the parent."""
        for process in self.processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
            process.returncode = 0  # not ours to wait for
        self.__init__(self.most)  # type: ignore[misc]


def _ask(process: Popen[bytes], text: str) -> bytes | None:
    """What a worker answers; ``None`` if LLVM refuses the text."""
    assert process.stdin is not None
    data = text.encode()
    message = memoryview(worker.LENGTH.pack(len(data)) + data)
    while message:
        message = message[process.stdin.write(message) :]
    deadline = time.monotonic() + PATIENCE
    is_made, length = worker.REPLY.unpack(_receive(process, worker.REPLY.size, deadline))
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
os.register_at_fork(after_in_child=WORKERS.forget)
