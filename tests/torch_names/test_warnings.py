"""Under ``as_torch`` a program sees the warnings that it sees with PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PROGRAM = Path(__file__).with_name("warning_program.py")


def warnings_of(*options: str) -> Any:
    """What the program notes in a process of its own: some warnings are given once in each."""
    command = [sys.executable, *options, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_calls_warn_as_in_pytorch(torch: ModuleType) -> None:
    expected, found = warnings_of(), warnings_of("-m", "evergrad.as_torch")
    differing = {name: (found[name], w) for name, w in expected.items() if found[name] != w}
    assert not differing
