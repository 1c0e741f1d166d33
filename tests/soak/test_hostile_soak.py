"""The long versions of the hostile suites: 68,000 broken files and 20,000 graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.test_held_memory import ending
from evergrad import config
from hostile import files, graphs


@pytest.mark.parametrize("name", files.FORMATS)
def test_3_600_broken_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sum(files.attack(name, 3600, 11, tmp_path)) == 3600


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(4))
def test_5_000_hostile_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "VERIFY_EACH_PASS", True)
    assert graphs.attack(5000, seed=100 + seed, compile_every=3) >= 5000


def test_a_process_with_3_000_programs_ends_within_a_second(tmp_path: Path) -> None:
    ending(3000, str(tmp_path))  # compiles
    assert ending(3000, str(tmp_path))[1] < 1.0
