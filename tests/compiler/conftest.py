"""Set-up of the compiler's tests: threads as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import evergrad as eg
from evergrad.compiler import program_cache


@pytest.fixture
def made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are not taken from the disk: for tests that change how they are made."""
    monkeypatch.setattr(program_cache, "fingerprint_of", lambda *given: None)


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = eg.get_num_threads()
    yield
    eg.set_num_threads(before)
