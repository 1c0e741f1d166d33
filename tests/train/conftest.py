"""What the tests of training share."""

from __future__ import annotations

import pytest

from evergrad.train import loop


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process leave their drawings out, which take longer than the runs."""
    monkeypatch.setattr(loop, "write_report", lambda path, trusted: [path / "report.html"])
