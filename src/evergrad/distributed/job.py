"""The MPI job this process belongs to: its engine, what ranks report of each other, and its end.

However a rank ends, the job ends: an unhandled exception aborts all ranks, and a rank that leaves
takes part in a last comparison, so that a collective it does not reach is an error on the others at
once, not after the time limit.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from evergrad.core.source_location import describe, user_location_in
from evergrad.distributed.agreement import by_rank
from evergrad.distributed.mpi import MpiTransport, abort, library
from evergrad.distributed.progress import DistributedError, Engine, Task

_QUESTION, _ANSWER = 1, 2
# How long the others have to answer what they are doing: on a busy machine a live rank may be
# descheduled for seconds. The wait ends with the last answer.
_ANSWER_SECONDS = 10.0
_FOREVER = 1e9
_INTERRUPTED = 130


class Job:
    """All ranks of ``mpiexec``; made once in a process."""

    def __init__(self) -> None:
        self.mpi: Any = library()
        world = self.mpi.COMM_WORLD
        self.rank: int = world.Get_rank()
        self.size: int = world.Get_size()
        self.world = world
        self.control: Any = None
        self.engine: Engine = Engine(self._explain, self._answer)
        self.transports: dict[str, MpiTransport] = {}
        self._sent: list[Any] = []
        self._process = os.getpid()
        install_hooks(abort)
        atexit.register(self.leave)

    def connect(self, timeout: float) -> MpiTransport:
        """A communicator of all ranks, once all have called this."""
        communicator, request = self.world.Idup()
        control, second = self.world.Idup()
        description = "init_process_group"
        for pending in (request, second):
            task = self.engine.submit("connect", _completion(pending), description, timeout)
            self.engine.wait(task)
        self.control = control
        return MpiTransport(communicator, list(range(self.size)))

    def subgroup(self, parent: MpiTransport, ranks: list[int], tag: int) -> MpiTransport:
        """A communicator of some ranks; only they call this, at the same time."""
        chosen = parent.communicator.Get_group().Incl(ranks)
        with self.engine.lock:
            return MpiTransport(parent.communicator.Create_group(chosen, tag), ranks)

    # -- what ranks report ----------------------------------------------------------------------

    def status(self) -> str:
        """What this rank is doing, for the others."""
        tasks = [str(queue[0].description) for queue in self.engine.queues.values() if queue]
        if not tasks and self.engine.given_up is not None:
            tasks = [f"{self.engine.given_up}, which it gave up"]
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        line = describe(user_location_in(frame))
        waiting = f"waits for {'; '.join(tasks)}; " if tasks else "is in no collective; "
        return f"{waiting}its program is at {line}"

    def _explain(self, task: Task) -> Exception:
        """The error for a task that timed out, with what the other ranks are doing."""
        found = dict.fromkeys(range(self.size), "gives no answer")
        if self.control is not None:
            found.update(self._ask())
        found[self.rank] = "waits here"
        return DistributedError(
            f"rank {self.rank}: {task.description} did not complete within its time limit. "
            f"The ranks:\n{by_rank(found)}\n  fix: call the same collectives on every rank, or "
            "give init_process_group a longer timeout"
        )

    def _ask(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for rank in range(self.size):
            if rank != self.rank:
                self._send(b"", rank, _QUESTION)
        end = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < end and len(found) < self.size - 1:
            self._answer()
            message = self._received(_ANSWER)
            if message is not None:
                found[message[0]] = message[1].decode("utf-8", "replace")
            else:
                time.sleep(1e-3)
        return found

    def _answer(self) -> None:
        """Send the status of this rank to those that requested it; the engine's lock is held."""
        if self.control is None:
            return
        while (message := self._received(_QUESTION)) is not None:
            self._send(self.status().encode(), message[0], _ANSWER)

    def _send(self, data: bytes, rank: int, tag: int) -> None:
        self._sent.append(self.control.Isend(bytearray(data), rank, tag))
        self._sent = [request for request in self._sent if not request.Test()]

    def _received(self, tag: int) -> tuple[int, bytes] | None:
        status = self.mpi.Status()
        if not self.control.Iprobe(self.mpi.ANY_SOURCE, tag, status):
            return None
        data = bytearray(status.Get_count(self.mpi.BYTE))
        self.control.Recv(data, status.Get_source(), tag)
        return status.Get_source(), bytes(data)

    # -- the end ------------------------------------------------------------------------------

    def leave(self) -> None:
        """Take leave of every group, then let MPI end; a job that has failed is aborted. A child
        that was forked is no rank."""
        if os.getpid() != self._process:
            return
        if self.engine.broken is not None:
            abort(1)
        for transport in list(self.transports.values()):
            self.farewell(transport, _FOREVER)
        self.engine.close()

    def farewell(self, transport: MpiTransport, timeout: float) -> None:
        """Agree with the other ranks of a group that it has ended."""
        description = "has left: its program ended, or it destroyed the process group"
        while True:
            steps = transport.check("leave", description)
            task = self.engine.submit(transport, steps, "the end of the process group", timeout)
            try:
                self.engine.wait(task)
            except DistributedError:
                if self.engine.broken is not None:
                    abort(1)
                continue  # the others were in a collective, and have been given the error
            return


def _completion(request: object) -> Any:
    yield request


def install_hooks(abort: Callable[[int], None]) -> None:
    """Make unhandled exceptions, in any thread, end the whole job."""
    former = sys.excepthook
    former_thread = threading.excepthook

    def on_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        former(kind, error, trace)
        abort(_INTERRUPTED if issubclass(kind, KeyboardInterrupt) else 1)

    def on_thread_exception(args: threading.ExceptHookArgs) -> None:
        former_thread(args)
        if args.exc_type is not SystemExit:
            abort(1)

    sys.excepthook = on_exception
    threading.excepthook = on_thread_exception
