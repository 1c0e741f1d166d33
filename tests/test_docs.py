"""The tour runs, and the generated pages are those the table gives now."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOUR = runpy.run_path(str(ROOT / "docs" / "tour.py"))


@pytest.mark.parametrize("stop", TOUR["STOPS"], ids=lambda stop: stop.__name__)
def test_tour(stop: object) -> None:
    stop()  # type: ignore[operator]


def test_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
