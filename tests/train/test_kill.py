"""``kill -9`` at any moment: the run that is resumed is the one that was left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.kills import survive

pytestmark = pytest.mark.usefixtures("without_report")


def test_killed_runs_end_like_one_left_alone(tmp_path: Path) -> None:
    """The long version, with 50 kills, is in tests/soak."""
    assert survive(tmp_path, steps=400, kills=5, seed=1) == 5
