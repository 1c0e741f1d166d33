"""Random graphs of hostile values. The long version, with 20,000, is in tests/soak."""

from __future__ import annotations

import pytest

import evergrad as eg
from evergrad import config

from .graphs import attack


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_hostile_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "VERIFY_EACH_PASS", True)
    assert attack(600, seed=1, compile_every=8) >= 600


def test_empty_images_have_no_planes() -> None:
    """Found by the suite: the extents of a group were divided by zero."""
    step = eg.compile(lambda x: x.reshape(1, 0, 4).sum(2) + x.reshape(1, 0, 2, 2).sum((2, 3)))
    assert step(eg.ones(1, 0, 4)).shape == (1, 0)
