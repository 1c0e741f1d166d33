"""``evergrad demo``: half a minute of a plan that holds and a run that survives its death."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from evergrad.cli.timeline import draw_timeline
from evergrad.core.tensor import Tensor
from evergrad.memory.reports import size
from evergrad.train.checkpoint import read_checkpoint
from evergrad.train.config import ConfigError
from evergrad.train.directory import require_makeable
from evergrad.train.packages import package

_KILL_AT = 0.6  # of all steps
_CHECKPOINT_EVERY = 25
_REFRESH = 0.1  # seconds
_COLUMNS, _ROWS = 64, 9


@click.command()
@click.option("--steps", default=400, show_default=True, type=click.IntRange(min=60),
              help="Steps of the training.")  # fmt: skip
@click.option("--output", type=click.Path(path_type=Path), metavar="FOLDER",
              help="Keep both runs there; without it they are removed.")  # fmt: skip
def demo(steps: int, output: Path | None) -> None:
    """Show in half a minute what evergrad is for.

    A tiny GPT is trained on the text every Python ships, twice at the same time. One training is
    killed in its middle (SIGKILL), and resumed from its newest checkpoint. At the end weights,
    optimizer and logged losses of both are compared bit by bit, and the memory that was planned
    before the first step with what was measured.

    \b
    Examples:
      evergrad demo
      evergrad demo --steps 1000 --output demo-runs

    \b
    Exit codes: 0 if both runs are equal to the bit and memory was as planned, 1 if not, 2 for an
    option that cannot be used.
    """
    with ExitStack() as stack:
        if output is None:
            output = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evergrad-demo-")))
        elif output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise ConfigError(f"{output} is not an empty folder; name another with --output")
        else:
            require_makeable(output)
        sys.exit(0 if Demo(output, steps, stack).run() else 1)


class Demo:
    """Two trainings of the same configuration, one of which is killed and resumed."""

    killed: Path
    whole: Path

    def __init__(self, folder: Path, steps: int, stack: ExitStack) -> None:
        self.steps = steps
        self.folder = folder
        self.whole, self.killed = folder / "never-stopped", folder / "killed"
        self._stack = stack
        self._console = package("rich.console").Console(highlight=False, soft_wrap=True)

    def run(self) -> bool:
        """Return whether every promise held."""
        beside = self._start(self.whole)
        first = self._start(self.killed)
        self._say("[bold]1[/]  A GPT of 108,736 parameters learns the text of Python's help.")
        self._follow(first, round(self.steps * _KILL_AT))
        first.kill()
        first.wait()
        done = len(_losses(self.killed))
        self._say(f"[bold]2[/]  [red]Killed[/] (SIGKILL) after step {done}. " + self._saved())
        second = self._start(self.killed, resume=True)
        self._follow(second, self.steps)
        for process in (second, beside):
            if process.wait() != 0:
                raise click.ClickException(f"a training ended with code {process.returncode}")
        self._say("[bold]3[/]  Resumed and done; beside it, the same training was never stopped.")
        return all([self._compare_runs(), self._compare_memory()])

    def _start(self, folder: Path, resume: bool = False) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "evergrad", "train"]
        if resume:
            command += [str(folder), "--resume"]
        else:
            command += [
                "gpt", "--tiny", "--output", str(folder), "--steps", str(self.steps),
                "--log-every", "1", "--checkpoint-every", str(_CHECKPOINT_EVERY),
                "--evaluate-every", "0", "--sample-every", "0", "--threads", "1", "--warmup", "30",
            ]  # fmt: skip
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._stack.callback(_end, process)
        return process

    def _follow(self, process: subprocess.Popen[bytes], until: int) -> None:
        """Draw the loss while a training runs, up to this step."""
        with package("rich.live").Live(console=self._console, refresh_per_second=10) as live:
            while True:
                is_over = process.poll() is not None
                losses = _losses(self.killed)
                live.update(_curve(losses, self.steps))
                if is_over or len(losses) >= until:
                    return
                time.sleep(_REFRESH)

    def _saved(self) -> str:
        newest = max((p.stem for p in self.killed.glob("checkpoints/step-*.ckpt")), default="")
        step = int(newest.removeprefix("step-") or 0)
        return (
            f"The newest checkpoint is of step {step}; from there: " + "evergrad train RUN --resume"
        )

    # -- verdicts -----------------------------------------------------------------------------

    def _compare_runs(self) -> bool:
        one, other = (read_checkpoint(self._last(folder)).content for folder in self._runs)
        pairs = list(zip(_numbers(one), _numbers(other), strict=True))
        count = sum(int(a.numel()) for a, _ in pairs)
        equal = all(bool((a == b).all()) for a, b in pairs)
        same_losses = _losses(self.whole) == _losses(self.killed)
        self._verdict(
            equal and same_losses,
            f"{count:,} numbers (weights, optimizer, random state) and {self.steps} losses are "
            "equal to the bit",
        )
        return equal and same_losses

    def _compare_memory(self) -> bool:
        table = json.loads((self.whole / "memory.json").read_text())
        planned, measured = table["peak"]["planned"], table["peak"]["measured"]
        self._verdict(
            planned == measured,
            f"memory planned before the first step {planned:,} bytes ({size(planned)}), measured "
            f"{measured:,}",
        )
        return bool(planned == measured)

    @property
    def _runs(self) -> tuple[Path, Path]:
        return self.whole, self.killed

    def _last(self, folder: Path) -> Path:
        return folder / "checkpoints" / f"step-{self.steps:06d}.ckpt"

    def _verdict(self, holds: bool, text: str) -> None:
        self._say(f"{'[green]ok[/]' if holds else '[red]WRONG[/]'}  {text}")

    def _say(self, text: str) -> None:
        self._console.print(text)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def _losses(folder: Path) -> list[float]:
    """The loss of each step that a run has logged; a line that is being written counts not yet."""
    try:
        lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [found["loss"] for found in map(json.loads, lines) if "loss" in found]


def _curve(losses: Sequence[float], steps: int) -> str:
    """The loss so far in as many columns as its share of all steps."""
    width = max(1, round(_COLUMNS * len(losses) / steps))
    drawn = "starting ..."
    if losses:
        drawn = draw_timeline(losses, width=width, height=_ROWS, told="{:.2f}".format, axis="")
    now = f"   loss {losses[-1]:.3f}" if losses else ""
    return f"{drawn}\nstep {len(losses)} of {steps}{now}\n"


def _numbers(content: object) -> Iterator[Tensor]:
    """All tensors of a checkpoint, in order."""
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, dict):
        for key in content:
            if key not in ("seconds", "config", "metrics_offset"):
                yield from _numbers(content[key])
    elif isinstance(content, list | tuple):
        for item in content:
            yield from _numbers(item)
