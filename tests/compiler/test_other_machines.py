"""Compiled steps on a processor with other registers, by emulation."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .emulated import COMPILER, EMULATOR, STEPS

_MISSING = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]


@pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}")
@pytest.mark.parametrize("name", STEPS)
def test_steps_on_arm(name: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("emulated.py")
    ended = subprocess.run(
        [sys.executable, str(script), name, str(tmp_path)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "agree" in ended.stdout
