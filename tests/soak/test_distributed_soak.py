"""Jobs of several ranks: whole models, every task with resumption, and ranks that are killed at
random moments."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.distributed.checks import names
from tests.distributed.launching import results
from tests.distributed.test_namespaces import Pair, machines, run
from tests.distributed.test_spellings import EXPECTED, PROGRAMS, differences
from tests.distributed.test_train import flat, losses, train

from evergrad.train.checkpoint import read_checkpoint
from evergrad.train.task import TASKS

__all__ = ["machines"]  # a fixture
KILLS = 20
LIMIT = 60
STEPS = 400


def command(output: Path, *words: str) -> list[str]:
    own = Path(sysconfig.get_path("scripts")) / "mpiexec"
    found = str(own) if own.exists() else shutil.which("mpiexec")
    if found is None or find_spec("mpi4py") is None:
        pytest.skip("no MPI: pip install 'evergrad[mpi]'")
    return [found, "-n", "2", sys.executable, "-m", "evergrad", "train", *words, "--output",
            str(output), "--resume"]  # fmt: skip


def ranks_of(job: int) -> list[int]:
    """The Python processes below a process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            text = Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        parents[int(entry)] = int(text.rpartition(")")[2].split()[1])
        names[int(entry)] = text[text.index("(") + 1 : text.rindex(")")]
    proxies = [pid for pid, parent in parents.items() if parent == job]
    found = [pid for pid, parent in parents.items() if parent in proxies]
    return [pid for pid in found if "python" in names[pid]]


def test_a_rank_is_killed_at_random_moments(tmp_path: Path) -> None:
    options = ("mlp", "--tiny", "--steps", str(STEPS), "--checkpoint-every", "20")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run(command(whole, *options), check=True, timeout=600, capture_output=True)
    chance = random.Random(0)
    kills = 0
    while True:
        job = subprocess.Popen(command(parts, *options), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            job.wait(chance.uniform(0.2, 6.0) if kills < KILLS else 600)
        except subprocess.TimeoutExpired:
            victims = ranks_of(job.pid)
            if victims:
                os.kill(chance.choice(victims), signal.SIGKILL)
                kills += 1
            start = time.monotonic()
            assert job.wait(LIMIT) != 0, f"kill {kills}"
            assert time.monotonic() - start < LIMIT
            continue
        assert job.returncode == 0
        break
    found, expected = (read_checkpoint(p / "checkpoints" / f"step-{STEPS:06d}.ckpt").content
                       for p in (parts, whole))  # fmt: skip
    for name, value in expected["model"].items():
        assert found["model"][name].tolist() == value.tolist(), name


CHECKED = [(4, "models"), (2, "tasks"), (4, "tasks")]
CHECKS = [(n, program, name) for n, program in CHECKED for name in names(program)]


@pytest.mark.parametrize(("ranks", "program", "check"), CHECKS, ids=lambda value: str(value))
def test_models_are_those_of_one_process(ranks: int, program: str, check: str) -> None:
    for rank, error in enumerate(results(ranks, program)[check]):
        assert not error, f"rank {rank}: {error}"


LAST = "checkpoints/step-000004.ckpt"
# Tasks whose losses depend on numbers that each rank draws for itself: with another number of ranks
# a run is another one, of the same kind.
DRAW = ("dit", "flux")
# Elsewhere sums have another order. Adam divides tiny gradients by their own size, so rounding of
# those grows, most behind batch norms.
TOLERANCES = {**dict.fromkeys(DRAW, 0.05), "resnet": 1e-4}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT to fine-tune."""
    output = tmp_path_factory.mktemp("base") / "gpt"
    done = train(1, "gpt", "--tiny", "--steps", "4", "--output", str(output))
    assert done.returncode == 0, done.stderr
    return output


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_and_resumes(task: str, base: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    words = ["--init-from", str(base)] if task in ("chat", "dpo") else []
    done = train(
        2, task, *words, "--tiny", "--steps", "4", "--batch", "8", "--log-every", "1",
        "--evaluate-every", "0", "--sample-every", "0", "--checkpoint-every", "2", "--output",
        str(whole),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = read_checkpoint(whole / LAST).content
    for ranks in (2, 1, 4):
        copy = tmp_path / f"on-{ranks}"
        shutil.copytree(whole, copy)
        for gone in (LAST, "checkpoints/best.ckpt"):
            shutil.rmtree(copy / gone)
        done = train(ranks, str(copy), "--resume")
        assert done.returncode == 0, done.stderr
        found = read_checkpoint(copy / LAST).content
        if ranks == 2:
            same, others = flat(found), flat(expected)
            for key in set(others) - {"/config", "/seconds", "/metrics_offset"}:
                assert same[key] == others[key], key
        for name, value in expected["model"].items():
            tolerance = TOLERANCES.get(task, 1e-5)
            np.testing.assert_allclose(found["model"][name].numpy(), value.numpy(), atol=tolerance)


def test_the_command_trains_on_two_machines(machines: Pair, tmp_path: Path) -> None:
    words = ["mlp", "--tiny", "--eager", "true", "--steps", "3", "--log-every", "1",
             "--evaluate-every", "0", "--sample-every", "0"]  # fmt: skip
    one, two = tmp_path / "one", tmp_path / "two"
    assert train(1, *words, "--output", str(one)).returncode == 0
    launch = [sys.executable, "-m", "evergrad", "launch", "-n", "2", "--hosts", machines.hosts,
              "--remote-shell", str(machines.remote_shell), "--", "train"]  # fmt: skip
    done = run(machines, machines.command(*launch, *words, "--output", str(two)))
    assert done.returncode == 0, done.stderr
    assert "parameters on 2 ranks" in done.stdout
    np.testing.assert_allclose(losses(two), losses(one), rtol=2e-5)


@pytest.mark.parametrize("program", EXPECTED)
def test_spellings_on_pytorch(program: str, tmp_path: Path) -> None:
    """The expected results are those of the PyTorch that is installed."""
    pytest.importorskip("torch")
    path = tmp_path / "torch.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node"]
    command += [str(len(EXPECTED[program])), str(PROGRAMS / f"{program}.py"), str(path)]
    subprocess.run(command, check=True, timeout=600, cwd=tmp_path)
    for found, expected in zip(json.loads(path.read_text()), EXPECTED[program], strict=True):
        assert not differences({k: found[k] for k in expected}, expected)
