"""Set-up of the commands' tests: threads as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import evergrad

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = evergrad.get_num_threads()
    yield
    evergrad.set_num_threads(before)


@pytest.fixture
def run() -> Run:
    """Run the ``evergrad`` command with these words; gives click's result: exit code and output."""
    missing = "is not installed: pip install 'evergrad[app]'"
    testing = pytest.importorskip("click.testing", reason=f"click {missing}")
    pytest.importorskip("rich", reason=f"rich {missing}")
    from evergrad.cli.main import main

    def invoke(*words: str) -> Any:
        result = testing.CliRunner().invoke(main, list(words))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke
