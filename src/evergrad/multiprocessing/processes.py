"""Run a function in several processes, and stop all of them when one fails."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from evergrad.core.types import Args

# As many characters as fit into a pipe that is not read yet, whatever their encoding.
_LONGEST_MESSAGE = 15_000


class ProcessException(Exception):  # noqa: N818 - PyTorch's name
    """A process that was started together with others did not end well."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = pid


class ProcessRaisedException(ProcessException):
    """The function raised; the message has the trace."""


class ProcessExitedException(ProcessException):
    """The process ended with another exit code than 0, or by a signal."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int,
        signal_name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, processes: list[Any], errors: list[Connection]) -> None:
        self.processes = processes
        self.sentinels: dict[Any, int] = {
            process.sentinel: i for i, process in enumerate(processes)
        }
        self._errors = errors

    def pids(self) -> list[int]:
        """The process numbers."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until a process ends; true if it was the last.

        If it failed, the others are stopped (killed after ``grace_period`` seconds, if given) and
        an exception says what happened.
        """
        ended = [self.sentinels.pop(s) for s in wait(self.sentinels.keys(), timeout)]
        failed = [index for index in ended if self._exit_code(index) != 0]
        if not failed:
            return not self.sentinels
        self._stop_all(grace_period)
        raise self._failure(failed[0])

    def _exit_code(self, index: int) -> int:
        self.processes[index].join()
        return int(self.processes[index].exitcode)

    def _stop_all(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        if grace_period is not None:
            deadline = time.monotonic() + grace_period
            for process in self.processes:
                process.join(max(0.0, deadline - time.monotonic()))
                if process.is_alive():
                    process.kill()
        for process in self.processes:
            process.join()

    def _failure(self, index: int) -> ProcessException:
        pid, exit_code = self.pids()[index], self._exit_code(index)
        if self._errors[index].poll():
            try:
                trace = self._errors[index].recv()
            except EOFError:
                pass  # it ended without a word
            else:
                text = f"\n\n-- Process {index} terminated with the following error:\n{trace}"
                return ProcessRaisedException(text, index, pid)
        if exit_code < 0:
            name = _signal_name(-exit_code)
            text = f"process {index} terminated with signal {name}"
            return ProcessExitedException(text, index, pid, exit_code, name)
        text = f"process {index} terminated with exit code {exit_code}"
        return ProcessExitedException(text, index, pid, exit_code)


class SpawnContext(ProcessContext):
    """The name this had when processes were always spawned."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"<Unknown signal {number}>"


def start_processes(
    fn: Callable[..., object],
    args: Args = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call ``fn(i, *args)`` in ``nprocs`` processes; wait for them, or give what does (``join``).

    If one fails the others are stopped, and the exception has its trace.
    """
    context: Any = multiprocessing.get_context(start_method)
    processes: list[Any] = []
    errors: list[Connection] = []
    try:
        for index in range(nprocs):
            ours, theirs = context.Pipe(duplex=False)
            errors.append(ours)
            process = context.Process(target=_run, args=(fn, index, args, theirs), daemon=daemon)
            try:
                process.start()
            finally:
                theirs.close()
            processes.append(process)
    except BaseException:
        for process in processes:
            process.terminate()
            process.join()
        raise
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def _run(fn: Callable[..., object], index: int, args: Args, errors: Connection) -> None:
    """The main function of a process: an exception goes to the process that joins."""
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent is interrupted as well
    except Exception:
        errors.send(traceback.format_exc()[-_LONGEST_MESSAGE:])
        sys.exit(1)


def spawn(
    fn: Callable[..., object],
    args: Args = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call ``fn(i, *args)`` in ``nprocs`` fresh processes; see :func:`start_processes`."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\n"
            "To use a different start_method use:\n\t\t "
            "evergrad.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
