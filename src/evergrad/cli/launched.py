"""One rank of ``evergrad launch``: sets the variables of PyTorch's launcher and runs a program."""

from __future__ import annotations

import os
import runpy
import sys
from importlib import import_module

from evergrad.config import set_launcher_variables
from evergrad.distributed import mpi
from evergrad.distributed.job import install_hooks


def main(words: list[str]) -> None:
    """Run a command of evergrad, or the program in a file, as this rank."""
    library = mpi.library()
    install_hooks(mpi.abort)
    world = library.COMM_WORLD
    host = library.Get_processor_name()
    # One write without a line's end: nothing of it is left when lines of ranks are mixed.
    os.write(1, f"\x01rank {world.rank} is process {os.getpid()} on {host}\x02".encode())
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
    main(sys.argv[1:])
