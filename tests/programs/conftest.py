"""One thread in both libraries (sums in a fixed order), and default types that are put back."""

from collections.abc import Iterator
from types import ModuleType

import pytest

import evergrad


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    former = evergrad.get_num_threads()
    evergrad.set_num_threads(1)
    yield
    evergrad.set_num_threads(former)


@pytest.fixture(scope="package")
def torch_with_one_thread(torch: ModuleType) -> Iterator[ModuleType]:
    former = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(former)


@pytest.fixture
def reference(torch_with_one_thread: ModuleType) -> Iterator[ModuleType]:
    """PyTorch; afterwards both libraries make float32 again."""
    yield torch_with_one_thread
    evergrad.set_default_dtype(evergrad.float32)
    torch_with_one_thread.set_default_dtype(torch_with_one_thread.float32)
