"""One rank of ``evergrad launch``: sets the variables of PyTorch's launcher and runs a program.

The program runs in a child process. ``mpiexec`` kills all ranks once one has died, and then reports
any of them; the parent reports how its own child has ended before ``mpiexec`` sees it.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import socket
import sys
from importlib import import_module
from types import FrameType

from evergrad.config import set_launcher_variables
from evergrad.distributed import mpi
from evergrad.distributed.job import install_hooks

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1


def supervise() -> None:
    """Return in a child process; the parent ends as the child does, and reports how."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it has ended before
                os._exit(1)
        return

    def forward(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in _FORWARDED:
        signal.signal(number, forward)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        os.write(1, f"\x01process {child} on {socket.gethostname()} ended: {code}\x02".encode())
    if code < 0:
        if -code in _FORWARDED:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(parent, -code)
    os._exit(code)


def main(words: list[str]) -> None:
    """Run a command of evergrad, or the program in a file, as this rank."""
    library = mpi.library()
    install_hooks(mpi.abort)
    world = library.COMM_WORLD
    host = library.Get_processor_name()
    # One write without a line's end: nothing of it is left when lines of ranks are mixed.
    for process in (os.getppid(), os.getpid()):  # mpiexec reports the parent
        os.write(1, f"\x01rank {world.rank} is process {process} on {host}\x02".encode())
    hosts = world.allgather(host)
    set_launcher_variables(
        {
            "RANK": str(world.rank),
            "WORLD_SIZE": str(world.size),
            "LOCAL_RANK": str(hosts[: world.rank].count(host)),
            "LOCAL_WORLD_SIZE": str(hosts.count(host)),
            "MASTER_ADDR": hosts[0],
            "MASTER_PORT": "29500",
        }
    )
    if words[0] == "--as-torch":
        import_module("evergrad.as_torch").install()
        words = words[1:]
    if words[0].endswith(".py"):
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")
    else:
        from evergrad.cli.main import main as command  # start-up: not needed by a program

        command(words, prog_name="evergrad")


if __name__ == "__main__":
    if hasattr(os, "fork"):
        supervise()
    main(sys.argv[1:])
