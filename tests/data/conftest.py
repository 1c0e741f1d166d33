"""What every test of loading must leave behind: nothing."""

import gc
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def _shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return set(os.listdir(folder)) if folder.is_dir() else set()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No worker lives on, and no named shared memory was made."""
    before = _shared_memory()
    yield
    gc.collect()
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
    assert not left
    ours = {name for name in _shared_memory() - before if not name.startswith("torch_")}
    assert not ours
