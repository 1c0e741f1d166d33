"""How a command ends that cannot go on: one message and one exit code for each kind of failure."""

from __future__ import annotations

import click

from evergrad.distributed.mpi import launched_rank
from evergrad.distributed.progress import DistributedError
from evergrad.errors import FileFormatError, GradientError, MemoryLimitError
from evergrad.train.checkpoint import CheckpointError
from evergrad.train.config import ConfigError
from evergrad.train.exit_codes import ExitCode

# The first entry that an error is an instance of decides. A missing checkpoint is both a
# ConfigError and a CheckpointError: what was named does not exist.
_CODES: tuple[tuple[tuple[type[BaseException], ...], ExitCode], ...] = (
    ((ConfigError,), ExitCode.USAGE),
    ((CheckpointError, FileFormatError), ExitCode.NO_CHECKPOINT),
    ((MemoryLimitError, MemoryError), ExitCode.MEMORY),
    ((DistributedError, GradientError, ImportError, OSError), ExitCode.ERROR),
    ((KeyboardInterrupt,), ExitCode.INTERRUPTED),
)


def exit_code_of(error: BaseException) -> ExitCode | None:
    """The exit code of an error that ends a command, ``None`` for one that is a bug."""
    if isinstance(error, BrokenPipeError):  # the output's reader has closed it; click ends quietly
        return None
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), None)


def report_failure(error: BaseException, code: ExitCode) -> ExitCode:
    """Print why a command ends; an error that all ranks have is printed by the first."""
    if launched_rank() == 0 or isinstance(error, OSError):
        message = "interrupted" if isinstance(error, KeyboardInterrupt) else _message(error)
        click.echo(f"error: {message}", err=True)
    return code


def _message(error: BaseException) -> str:
    """An error's text; that of one without any is the name of its class."""
    return str(error) or type(error).__name__
