"""Broken files of every format: read or refused, with little memory. The long version, with 68,000
files, is in tests/soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from .files import FORMATS, attack


@pytest.mark.parametrize("name", FORMATS)
def test_broken_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    accepted, refused = attack(name, 150, 1, tmp_path)
    assert accepted + refused == 150
    assert refused or name in ("metrics", "kernel cache")
