"""One thread in both libraries: sums in a fixed order, and no contest for the cores."""

from collections.abc import Iterator
from types import ModuleType

import pytest

import evergrad


@pytest.fixture(autouse=True, scope="package")
def one_thread(torch: ModuleType) -> Iterator[None]:
    former = evergrad.get_num_threads(), torch.get_num_threads()
    evergrad.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    evergrad.set_num_threads(former[0])
    torch.set_num_threads(former[1])
