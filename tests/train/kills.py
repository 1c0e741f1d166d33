"""Runs that are killed again and again, and then compared with one that was not."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from evergrad.train.config import RunConfig, to_toml
from evergrad.train.exit_codes import ExitCode
from train.killed import PLACES
from train.runs import assert_same_runs, environment, start, tiny, train
from train.tiny_task import NAME

LONGEST_START = 60.0
# Before there is a configuration, and before there is a best checkpoint.
EARLY = {0: ("replace", 0), 2: ("link", 0)}


def write_config(folder: Path, config: RunConfig) -> Path:
    path = folder / "config.toml"
    path.write_text(to_toml(config))
    return path


def kill_at_place(config_file: Path, place: str, count: int) -> bool:
    """Let the run kill itself at a system call; tells whether it got that far."""
    done = subprocess.run(
        [sys.executable, "-m", "train.killed", place, str(count), "train", str(config_file),
         "--resume", "--trust-task", NAME],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (-signal.SIGKILL, ExitCode.DONE), done.stdout + done.stderr
    return done.returncode == -signal.SIGKILL


def kill_after(config_file: Path, run: Path, steps: int, seconds: float) -> bool:
    """Kill the run so many steps after it has gone on, and a moment; tells whether it still ran."""
    with start(config_file, "--resume") as process:
        wait_for_steps(run, process, steps)
        time.sleep(seconds)
        process.kill()
        output = process.communicate()[0]
    assert process.returncode in (-signal.SIGKILL, ExitCode.DONE), output
    return process.returncode == -signal.SIGKILL


def wait_for_steps(run: Path, process: subprocess.Popen[str], steps: int = 1) -> None:
    """Wait until a run has done so many steps more than its checkpoints know, or has ended."""
    saved = max((int(path.stem[5:]) for path in run.glob("checkpoints/step-*.ckpt")), default=0)
    deadline = time.monotonic() + LONGEST_START
    while process.poll() is None and time.monotonic() < deadline:
        if newest_step(run / "metrics.jsonl") >= saved + steps:
            return
        time.sleep(0.002)


def newest_step(metrics: Path) -> int:
    """The step of the last whole line."""
    text = metrics.read_bytes() if metrics.exists() else b""
    *whole, _ = text.rsplit(b"\n", 2)
    return int(json.loads(whole[-1])["step"]) if whole and whole[-1] else 0


def survive(folder: Path, steps: int, kills: int, seed: int) -> int:
    """Kill a run at random moments, let it end, compare it with one left alone; how many kills."""
    whole, killed = folder / "whole", folder / "killed"
    words = ("--steps", str(steps), "--checkpoint-every", "5", "--sample-every", "50")
    train(tiny(whole, *words))
    config_file = write_config(folder, tiny(killed, *words))
    draw = random.Random(seed)
    happened = 0
    for number in range(kills):
        if number in EARLY:
            happened += kill_at_place(config_file, *EARLY[number])
        elif number % 2:
            moment = draw.randrange(1, 30), draw.uniform(0.0, 0.01)
            happened += kill_after(config_file, killed, *moment)
        else:
            happened += kill_at_place(config_file, draw.choice(PLACES), draw.randrange(3, 9))
    assert train(tiny(killed, *words)) == ExitCode.DONE
    assert_same_runs(whole, killed, steps)
    assert not list(killed.rglob("*-part"))  # what killed processes left is gone
    return happened
