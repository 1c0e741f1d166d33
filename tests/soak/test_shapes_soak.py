"""500 batch sizes of one compiled step: bounded memory, no kernels, little time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "bench" / "shapes.py"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_500_batch_sizes(tmp_path: Path) -> None:
    report = tmp_path / "shapes.json"
    command = [sys.executable, BENCHMARK, "--only", "mlp", "--shapes", "500", "--json", report]
    subprocess.run(command, check=True)
    found = json.loads(report.read_text())["mlp"]
    assert found["resident"] <= 2 * found["alone"]
    assert found["kernels"] <= 8
    # Processor time: a busy machine disturbs it least.
    assert found["processor"] <= 0.020
