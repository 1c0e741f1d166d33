"""What a run says while it goes: a live bar on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from evergrad.memory.reports import size
from evergrad.train.packages import package

_SECONDS_BETWEEN_LINES = 5.0


class Progress(NamedTuple):
    """How a run stands after a step."""

    step: int
    steps: int
    loss: float
    rate: float
    unit: str
    lr: float
    live: int
    peak: int
    ranks: int = 1

    @property
    def speed(self) -> str:
        """The rate in total, and of each rank if there are several."""
        each = f" ({self.rate / self.ranks:,.0f} per rank)" if self.ranks > 1 else ""
        return f"{self.rate:,.0f} {self.unit}/s{each}"

    @property
    def short(self) -> str:
        """For beside a bar."""
        return f"loss {self.loss:.3f}  {self.speed}  lr {self.lr:.0e}  {size(self.peak)}"

    @property
    def long(self) -> str:
        """For a line of its own."""
        return (
            f"step {self.step}/{self.steps}  loss {self.loss:.3f}  {self.speed}  "
            f"lr {self.lr:.1e}  memory {size(self.live)} (peak {size(self.peak)})"
        )


class Silence:
    """The console of a rank that says nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class Console:
    """Words, tables and the progress of a run."""

    def __init__(self) -> None:
        self._console = package("rich.console").Console(
            file=sys.stdout, highlight=False, soft_wrap=True
        )
        self._bar: Any = None
        self._bar_task: object = None
        self._last_line = -_SECONDS_BETWEEN_LINES

    def say(self, text: str = "", style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False)

    def warn(self, text: str) -> None:
        """Something the user should know; the run continues."""
        self.say(f"warning: {text}", "yellow")

    def fail(self, text: str) -> None:
        """Why the run ends."""
        self.say(f"error: {text}", "red")

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table whose columns but the first are numbers."""
        made = package("rich.table").Table(title=title, box=None, title_justify="left")
        for number, column in enumerate(columns):
            made.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            made.add_row(*row)
        self._console.print(made)

    def sample(self, text: str) -> None:
        """What the model wrote, on a few indented lines."""
        for line in text.splitlines():
            self.say(f"  | {line}", "cyan")

    # -- progress -----------------------------------------------------------------------------

    def start(self, step: int, steps: int) -> None:
        """Begin to show progress."""
        if self._console.is_terminal:
            progress = package("rich.progress")
            self._bar = progress.Progress(
                progress.BarColumn(10), progress.MofNCompleteColumn(),
                progress.TextColumn("{task.description}"), progress.TimeRemainingColumn(),
                console=self._console, transient=True, refresh_per_second=4,
            )  # fmt: skip
            self._bar_task = self._bar.add_task("", total=steps, completed=step)
            self._bar.start()

    def progress(self, now: Progress) -> None:
        if self._bar is not None:
            self._bar.update(self._bar_task, completed=now.step, description=now.short)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES or now.step == now.steps:
            self._last_line = time.monotonic()
            self.say(now.long)

    def stop(self) -> None:
        """End the bar; words go on."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
