"""What every test of loading must leave behind: nothing."""

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

# Memory belongs to the whole machine: tests in other processes have names there while they run.
_PATIENCE = 30


def _shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return set(os.listdir(folder)) if folder.is_dir() else set()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No worker lives on, and no named shared memory stays."""
    before = _shared_memory()
    yield
    gc.collect()
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
    assert not left
    others = ("torch_", "mpich_")  # of PyTorch's workers, and of ranks that other tests start
    made = {name for name in _shared_memory() - before if not name.startswith(others)}
    deadline = time.monotonic() + _PATIENCE
    while made & _shared_memory():
        assert time.monotonic() < deadline, made
        time.sleep(0.05)
