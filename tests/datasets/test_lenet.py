"""The LeNet example learns; its full run is in tests/soak."""

from __future__ import annotations

import runpy
from collections.abc import Iterator

import pytest

import evergrad as eg

from .mnist_files import ROOT, mnist_root


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    former = eg.get_num_threads()
    yield
    eg.set_num_threads(former)


def test_a_tenth_of_an_epoch_is_enough_for_nine_digits_of_ten() -> None:
    lenet = runpy.run_path(str(ROOT / "examples" / "lenet.py"))
    arguments = ["--root", str(mnist_root()), "--epochs", "1", "--limit", "6400"]
    assert lenet["main"](arguments) >= 0.9
