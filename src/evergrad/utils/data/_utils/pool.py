"""The worker processes of a loader, seen from the process that owns them.

Each worker has a pipe of its own and shares no lock with any other, so that one that is killed
takes nothing with it.
"""

from __future__ import annotations

import _thread
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection as pipes
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from evergrad.utils.data._utils.shared import Unpacker
from evergrad.utils.data._utils.worker import Job, Reply, Task, quiet_blas, run_worker

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# Seconds that a worker has to finish its example after a stop is requested.
_GRACE = 5.0
_SHORT_GRACE = 0.5
_A_MOMENT = 0.01
# How often to look whether a silent worker is still alive: one killed in a crowd of processes that
# inherited its pipe leaves the pipe open.
_LOOK_FOR_DEATH = 5.0


class WorkerPool:
    """Starts workers, sends them tasks, receives their replies, and ends them."""

    def __init__(
        self, context: object, job: Job, resumes: Sequence[dict[str, object] | None]
    ) -> None:
        self._owner = os.getpid()
        self._workers: list[_Worker] = []
        quiet_blas()
        try:
            with _interrupts_held():
                for number, resume in enumerate(resumes):
                    self._workers.append(_Worker(context, job, number, resume))
        except BaseException:
            self.shut_down()
            raise

    @property
    def processes(self) -> Leaves:
        return [worker.process for worker in self._workers]

    def send(self, number: int, epoch: int, index: object) -> None:
        """Ask a worker for a batch. That it has died shows when the batch is waited for."""
        worker = self._workers[number]
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.connection.send(Task(epoch, index, worker.unpacker.take_freed()))

    def receive(self, number: int, timeout: float) -> Reply:
        """The next reply of one worker."""
        self._wait([number], timeout)
        return self._workers[number].receive()

    def first_ready(self, numbers: Sequence[int], timeout: float) -> int:
        """Of some workers one that has something to say."""
        return self._wait(numbers, timeout)

    def unpack(self, number: int, reply: Reply) -> Any:
        assert reply.parcel is not None
        return self._workers[number].unpacker.unpack(reply.parcel)

    def discard(self, number: int, reply: Reply) -> None:
        self._workers[number].unpacker.discard(reply.parcel)

    def _wait(self, numbers: Sequence[int], timeout: float) -> int:
        """Wait for any of some workers, for at most ``timeout`` seconds unless that is 0."""
        connections = {self._workers[number].connection: number for number in numbers}
        deadline = time.monotonic() + timeout if timeout > 0 else float("inf")
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")
            ready = pipes.wait(list(connections), min(remaining, _LOOK_FOR_DEATH))
            if ready:
                return connections[ready[0]]  # type: ignore[index]
            for number in numbers:
                self._workers[number].check_alive()

    def retire(self, number: int) -> None:
        """Let a worker end that has no more to give."""
        self._workers[number].hang_up()

    def shut_down(self, in_a_hurry: bool = False) -> None:
        """End all workers: kindly, then by a signal, then by one that cannot be refused."""
        if os.getpid() != self._owner:
            return  # a forked process inherited the object, not the workers
        try:
            self._end_all(_SHORT_GRACE if in_a_hurry else _GRACE)
        except BaseException:
            self._end_all(_SHORT_GRACE)
            raise

    def _end_all(self, grace: float) -> None:
        for worker in self._workers:
            worker.hang_up()
        deadline = time.monotonic() + grace
        while self._workers:
            self._workers[-1].end(deadline)
            self._workers.pop()

    def finalize(self) -> None:
        """End all workers where an exception would be lost; Ctrl-C comes a moment later instead."""
        try:
            self.shut_down()
        except KeyboardInterrupt:
            threading.Timer(_A_MOMENT, _thread.interrupt_main).start()


class _Worker:
    """One process, its pipe, and the memory it shares."""

    def __init__(
        self, context: Any, job: Job, number: int, resume: dict[str, object] | None
    ) -> None:
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        # Only a forked process inherits this end.
        to_close = self.connection if context.get_start_method() == "fork" else None
        self.unpacker = Unpacker()
        self.process = context.Process(
            target=run_worker, args=(theirs, to_close, job, number, resume), daemon=True
        )
        try:
            self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()  # the pipe then ends where the worker does

    def receive(self) -> Reply:
        try:
            reply: Reply = pickle.loads(self.connection.recv_bytes())
            if reply.parcel is not None and reply.parcel.new_arena is not None:
                self.unpacker.receive_new_arena(reply.parcel.new_arena, self.connection)
        except (EOFError, OSError):
            raise self._died() from None
        return reply

    def check_alive(self) -> None:
        if not self.process.is_alive() and not self.connection.poll(0):
            raise self._died()

    def _died(self) -> RuntimeError:
        self.process.join(_GRACE)
        return RuntimeError(
            f"DataLoader worker (pid(s) {self.process.pid}) exited unexpectedly"
            f" ({_cause_of_death(self.process.exitcode)})"
        )

    def hang_up(self) -> None:
        """Tell the worker, by the end of the pipe, that nothing more is wanted of it."""
        if self.connection.closed:
            return
        # Closing is not enough while a process forked later holds a copy of this end.
        if hasattr(socket, "AF_UNIX"):
            with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as s:
                s.shutdown(socket.SHUT_RDWR)
        self.connection.close()

    def end(self, deadline: float) -> None:
        process = self.process
        if process.pid is None:
            return
        process.join(max(0.0, deadline - time.monotonic()))
        for stop in (process.terminate, process.kill):
            if process.exitcode is None:
                stop()
                process.join(_GRACE)


def _cause_of_death(exit_code: int | None) -> str:
    if exit_code is None:
        return "its pipe is broken"
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by signal {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits until all workers are started; they begin with it held, too."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
