"""``mpiexec -n N evergrad train``: output once, shards, resumption with any number of ranks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergrad.train.checkpoint import read_checkpoint

from .launching import environment, mpiexec, run

LAST = "checkpoints/step-000006.ckpt"


def train(ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "evergrad", "train", *words]
    if ranks == 1:
        return subprocess.run([sys.executable, *command], capture_output=True, text=True,
                              timeout=300, env=environment(), check=False)  # fmt: skip
    return run(ranks, *command)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps on two ranks, with a checkpoint after the third."""
    mpiexec()  # skips without MPI
    output = tmp_path_factory.mktemp("runs") / "whole"
    done = train(
        2, "mlp", "--tiny", "--steps", "6", "--ema", "0.9", "--warmup", "2", "--log-every", "1",
        "--evaluate-every", "0", "--sample-every", "0", "--checkpoint-every", "3", "--output",
        str(output),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("parameters on 2 ranks") == done.stdout.count("step 6/6") == 1
    assert "per rank)" in done.stdout and not done.stderr
    return output


def interrupted(whole: Path, name: str) -> Path:
    """The run as it would be had it been killed between the third step and the sixth."""
    copy = whole.parent / name
    shutil.copytree(whole, copy)
    for gone in (LAST, "checkpoints/best.ckpt"):
        shutil.rmtree(copy / gone)
    return copy


def losses(output: Path) -> list[float]:
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        parts = [flat(inner, f"{path}/{key}") for key, inner in value.items()]
        return {k: v for part in parts for k, v in part.items()}
    return {path: value.tolist() if hasattr(value, "tolist") else value}


def test_a_checkpoint_is_a_folder_of_shards(whole: Path) -> None:
    path = whole / LAST
    assert sorted(p.name for p in path.iterdir()) == ["shard-0.pt", "shard-1.pt"]
    sizes = [p.stat().st_size for p in path.iterdir()]
    assert max(sizes) < 2 * min(sizes)
    content = read_checkpoint(path).content
    assert content["step"] == 6 and content["random"].shape[0] == 2
    assert read_checkpoint(whole).content["step"] == 6
    assert sorted(p.name for p in (whole / "checkpoints").iterdir()) == [
        "best.ckpt", "step-000000.ckpt", "step-000003.ckpt", "step-000006.ckpt",
    ]  # fmt: skip


def test_a_resumed_run_is_the_same_to_the_bit(whole: Path) -> None:
    parts = interrupted(whole, "parts")
    done = train(2, str(parts), "--resume")
    assert done.returncode == 0 and done.stdout.count("going on after step 3") == 1, done.stderr
    found, expected = (flat(read_checkpoint(p / LAST).content) for p in (parts, whole))
    for key in expected:
        if key not in ("/config", "/seconds", "/metrics_offset"):
            assert found[key] == expected[key], key
    assert losses(parts) == losses(whole)


@pytest.mark.parametrize("ranks", [1, 4])
def test_another_number_of_ranks_goes_on(whole: Path, ranks: int) -> None:
    copy = interrupted(whole, f"on-{ranks}")
    done = train(ranks, str(copy), "--resume")
    assert done.returncode == 0, done.stderr
    expected = read_checkpoint(whole / LAST).content["model"]
    found = read_checkpoint(copy / LAST).content["model"]
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value.numpy(), atol=1e-5, err_msg=name)
    assert (copy / LAST).is_dir() == (ranks > 1)


def test_a_damaged_shard_is_put_aside(whole: Path) -> None:
    copy = interrupted(whole, "damaged")
    shard = copy / "checkpoints/step-000003.ckpt/shard-1.pt"
    shard.write_bytes(shard.read_bytes()[:-100])
    done = train(2, str(copy), "--resume", "--steps", "1")
    assert "damaged" in done.stdout and "step-000003.ckpt.damaged" in done.stdout
    assert done.returncode == 0 and "going on after step 0" in done.stdout


def test_wrong_options_are_said_once(whole: Path) -> None:
    for words, message in (
        (["--batch", "15", "--steps", "2"], "does not divide by 2 ranks"),
        (["--wrong", "1"], "wrong"),
    ):
        output = whole.parent / "wrong"
        done = train(2, "mlp", "--tiny", *words, "--output", str(output))
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert done.stderr.count("error:") == 1 and not output.exists()


def test_a_loss_that_is_not_finite_is_named_on_its_rank(whole: Path) -> None:
    done = train(2, "mlp", "--tiny", "--steps", "40", "--lr", "1e30", "--clip", "0", "--warmup",
                 "0", "--output", str(whole.parent / "nan"))  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "not finite on rank" in done.stdout
