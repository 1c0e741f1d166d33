"""Set-up shared by all tests: the PyTorch reference and the hypothesis profile."""

from types import ModuleType

import pytest
from hypothesis import settings

settings.register_profile("evergrad", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("evergrad")


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the reference; a test that asks for it is skipped where it is not installed."""
    module: ModuleType = pytest.importorskip(
        "torch", reason="PyTorch 2.13.0 is not installed: pip install torch==2.13.0"
    )
    return module
