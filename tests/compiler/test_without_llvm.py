"""Without llvmlite every eager op works, and ``compile`` says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = (
    "import sys; sys.modules['llvmlite'] = None; sys.path.insert(0, 'tests')\n"
    "from evergrad.cli.main import main; main()"
)
ROOT = Path(__file__).parents[2]


def process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip


def test_every_eager_op_works_without_a_compiler() -> None:
    done = process("-m", "tests.compiler.without_llvm")
    assert done.returncode == 0, done.stderr
    layers, losses, refusals, rows = map(int, done.stdout.split())
    assert (layers, losses, refusals) == (18, 6, 4)
    assert rows > 1000


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("doctor",), 0, "pip install llvmlite"),
        (("train", "mlp", "--tiny", "--steps", "2"), 1, "pip install llvmlite"),
        (("train", "mlp", "--tiny", "--steps", "2", "--eager"), 0, ""),
    ],
)
def test_commands_without_a_compiler(
    words: tuple[str, ...], code: int, expected: str, tmp_path: Path
) -> None:
    pytest.importorskip("click")
    more = ("--output", str(tmp_path / "run")) if words[0] == "train" else ()
    done = process("-c", BLOCK, *words, *more)
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    assert expected in output and "Traceback" not in output
