"""``evergrad launch``: ``mpiexec`` for those who do not know it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import click

_DIED = re.compile(r"PID (\d+) RUNNING AT (\S+)")
# What a rank writes first; not passed on.
_STARTED = re.compile(r"\x01rank (\d+) is process (\d+) on (\S+?)\x02")
_SIGNAL = re.compile(r"\(signal (\d+)\)")
# What the parent of a rank that failed writes, with an exit code or the negative of a signal.
# mpiexec may report another rank, which it has killed then.
_ENDED = re.compile(r"\x01process (\d+) on (\S+?) ended: (-?\d+)\x02")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-n", "--ranks", type=click.IntRange(1), required=True, help="How many processes.")
@click.option("--hosts", help="Machines, as HOST[:RANKS],...; without it, this one.")
@click.option("--remote-shell", help="Program in place of ssh, called as `PROGRAM HOST COMMAND`.")
@click.option("--as-torch", is_flag=True, help="Let `import torch` in the program mean evergrad.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND ...")
def launch(
    ranks: int, hosts: str | None, remote_shell: str | None, as_torch: bool, words: tuple[str, ...]
) -> None:
    """Start a command of evergrad, or a Python program, on several ranks.

    A program finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment, as
    under torchrun, and calls init_process_group().

    \b
    Examples:
      evergrad launch -n 2 -- train gpt --steps 500
      evergrad launch -n 4 --hosts node1:2,node2:2 -- train runs/gpt --resume
      evergrad launch -n 2 program.py --epochs 3
    """
    options = ["-hosts", hosts] if hosts else []
    options += ["-launcher", "ssh", "-launcher-exec", remote_shell] if remote_shell else []
    sys.exit(run(ranks, options, as_torch, list(words)))


def launcher() -> str:
    """The ``mpiexec`` beside this Python, or of the system."""
    own = Path(sysconfig.get_path("scripts")) / "mpiexec"
    found = str(own) if own.exists() else shutil.which("mpiexec")
    if found is None or find_spec("mpi4py") is None:
        raise click.ClickException("MPI is missing: pip install 'evergrad[mpi]'")
    return found


def run(ranks: int, options: list[str], as_torch: bool, words: list[str]) -> int:
    """Start the ranks and pass their output on; gives the exit code of the job. ``options`` are
    those of ``mpiexec``."""
    command = [launcher(), "-n", str(ranks), *options]
    command += [sys.executable, "-m", "evergrad.cli.launched"]
    command += ["--as-torch"] * as_torch + words
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    try:
        return _follow(job)
    except KeyboardInterrupt:  # mpiexec has got it as well, and ends the ranks
        job.wait()
        return 130


def _follow(job: subprocess.Popen[str]) -> int:
    """Pass on lines; remember which process is which rank, to name one that died."""
    owner: dict[tuple[str, str], str] = {}
    died: str | None = None
    signal = ""
    first: int | None = None  # how the first rank that failed has ended
    assert job.stdout is not None
    for line in job.stdout:
        owner |= {(process, host): rank for rank, process, host in _STARTED.findall(line)}
        for process, host, code in _ENDED.findall(line):
            if first is None:
                first = int(code)
                died = owner.get((process, host)) if first < 0 else None
                signal = f" was killed by signal {-first};"
        line = _ENDED.sub("", _STARTED.sub("", line))
        if first is None:
            ended = _DIED.search(line)
            died = died or (owner.get((ended[1], ended[2])) if ended else None)
            if found := _SIGNAL.search(line):
                signal = f" was killed by signal {found[1]};"
        click.echo(line, nl=False)
    code = job.wait()
    if died is not None:
        click.echo(f"error: rank {died}{signal or ' died;'} all ranks were ended", err=True)
    if first is not None:
        return abs(first)
    return code if code >= 0 else 128 - code
