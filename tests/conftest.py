"""Set-up shared by all tests: PyTorch as reference, the hypothesis profile, kernels, garbage."""

import gc
import signal
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.semantics.summary import table
from evergrad import config
from storages import freeze

settings.register_profile("evergrad", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("evergrad")

# A shell lets what it starts in the background ignore interrupts, and so would its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """PyTorch, the reference; a test that asks for it is skipped where it is not installed."""
    module: ModuleType = pytest.importorskip(
        "torch", reason="PyTorch 2.13.0 is not installed: pip install torch==2.13.0"
    )
    return module


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Object code of the tests is kept beside their other files, not in the user's cache."""
    before = config.KERNEL_CACHE
    config.KERNEL_CACHE = str(tmp_path_factory.mktemp("kernels"))
    yield
    config.KERNEL_CACHE = before


@pytest.fixture(scope="session", autouse=True)
def verified_passes() -> Iterator[None]:
    """Graphs and memory plans of any size are verified after each compiler pass."""
    before = config.VERIFY_EQUATIONS, config.VERIFY_EACH_PASS
    config.VERIFY_EQUATIONS, config.VERIFY_EACH_PASS = sys.maxsize, True
    yield
    config.VERIFY_EQUATIONS, config.VERIFY_EACH_PASS = before


def pytest_collection_finish() -> None:
    """The collected tests and their modules live as long as the process: left out of collections,
    each of which would visit millions of objects. The generator of hypothesis is made before: it
    looks for what references it, and the collector does not see that any more."""
    _draw_once()
    freeze()


@settings(max_examples=1)
@given(st.none())
def _draw_once(nothing: None) -> None:
    """A property without a test, for what the first one of a process sets up."""


@pytest.fixture
def collector_off() -> Iterator[None]:
    """Only reference counts free memory."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How the pairs eager/compiled were served (``compiler/semantics``), where any ran."""
    reports = [r for found in terminalreporter.stats.values() for r in found]
    calls = [r for r in reports if getattr(r, "when", None) == "call"]
    properties = [p for r in calls for p in r.user_properties]
    outcomes = [value for name, value in properties if name == "semantics"]
    if outcomes:
        terminalreporter.write_line(f"compiled steps beside eager: {table(outcomes)}")
