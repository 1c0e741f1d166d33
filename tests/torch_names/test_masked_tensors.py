"""``torch.masked.MaskedTensor``: one program prints the same under PyTorch and ``as_torch``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("masked_program.py")


def lines(*command: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *command, str(PROGRAM)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_masked_tensors_are_the_same(torch: object) -> None:
    ours, theirs = lines("-m", "evergrad.as_torch"), lines()
    assert len(ours) > 30
    assert ours == theirs
