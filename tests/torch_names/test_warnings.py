"""Under ``as_torch`` a program sees the warnings that it sees with PyTorch."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).with_name("warning_program.py")


def test_calls_warn_as_in_pytorch(torch: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(PROGRAM))
    expected = json.loads(capsys.readouterr().out)
    command = [sys.executable, "-m", "evergrad.as_torch", str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    differing = {name: (found[name], w) for name, w in expected.items() if found[name] != w}
    assert not differing
