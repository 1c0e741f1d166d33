"""How a command ends, as its caller sees it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of all commands; ``cli/failures.py`` says which errors give which."""

    DONE = 0  # all steps, or stopped early because nothing improved any more
    ERROR = 1  # something unexpected, or a check that fails; the message says what
    USAGE = 2  # an option, a path, a configuration or data that cannot be used
    NOT_FINITE = 3  # the loss or a gradient is not finite; the last good state is saved
    NOT_SAVED = 4  # the newest state could not be written, an older one is there
    NO_CHECKPOINT = 5  # a checkpoint that is damaged, or a run without one that is whole
    MEMORY = 6  # the step cannot be done within the memory it was given
    INTERRUPTED = 130  # Ctrl-C; saved, unless it came twice
    TERMINATED = 143  # SIGTERM; saved
