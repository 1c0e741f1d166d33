"""Classes and modules of installed libraries that a step names: the first call stays quick, the
step compiles, and what it really reads or runs of the library is noticed."""

from __future__ import annotations

import importlib
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.compiler.frontend.state import library_calls
from evergrad.compiler.frontend.state.name_uses import uses_of
from evergrad.compiler.frontend.state.python_state import PythonState

_LIBRARY = """
    import abc

    gain = 2.0
    table = {"shift": 1.0}

    class Config:
        scale = 3.0

        def scaled(self, x):
            return x * self.scale * gain

        @property
        def shift(self):
            return table["shift"]

    class Named(abc.ABC):
        pass

    config = Config()

    def double(x):
        return helper(x) * 2

    def helper(x):
        return x + table["shift"]

    def unused(x):
        import random
        return exec("random.random()")
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A library that counts as installed."""
    (tmp_path / "installed_library.py").write_text(textwrap.dedent(_LIBRARY))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(library_calls, "_site_directories", lambda: (f"{tmp_path}/",))
    yield importlib.import_module("installed_library")
    del sys.modules["installed_library"]


def _compare(step: Callable[[Any], Any], change: Callable[[int], None], calls: int = 8) -> Any:
    """A step compiled and eager, with a change before each call."""
    compiled = eg.compile(step)
    for n in range(calls):
        change(n)
        x = eg.arange(3.0) + n
        np.testing.assert_allclose(compiled(x).numpy(), step(x).numpy(), rtol=1e-6)
    return compiled


def test_a_class_that_is_only_named(library: ModuleType) -> None:
    def step(x: Any) -> Any:
        return x * 2 if isinstance(x, library.Config) else x * 3

    compiled = _compare(step, lambda n: None, 2)
    assert compiled.last_call.kind == "whole"
    state = PythonState(step, (eg.ones(3),))
    assert state.opaque is None
    assert not any(held is library.unused for held in state.seen.values())


def test_the_class_rebound(library: ModuleType) -> None:
    def step(x: Any) -> Any:
        return x * 2 if isinstance(x, library.Config) else x * 3

    def change(n: int) -> None:
        if n == 3:
            library.Config = eg.Tensor  # type: ignore[attr-defined]

    _compare(step, change)


def test_registered_with_its_class(library: ModuleType) -> None:
    class Own:
        pass

    own = Own()

    def step(x: Any) -> Any:
        return x * 2 if isinstance(own, library.Named) else x * 3

    _compare(step, lambda n: library.Named.register(Own) if n == 3 else None)


def test_functions_that_run(library: ModuleType) -> None:
    def step(x: Any) -> Any:
        return library.double(x)

    def change(n: int) -> None:
        if n == 3:
            library.table["shift"] = 5.0
        if n == 5:
            library.helper = lambda x: x - 1  # type: ignore[attr-defined]

    compiled = _compare(step, change)
    assert compiled.last_call.kind == "whole"


def test_a_function_patched(library: ModuleType) -> None:
    def step(x: Any) -> Any:
        return library.double(x)

    def change(n: int) -> None:
        if n == 4:
            library.double = lambda x: x * 9  # type: ignore[attr-defined]

    _compare(step, change)


def test_an_object_of_the_library(library: ModuleType) -> None:
    config = library.Config()

    def step(x: Any) -> Any:
        return config.scaled(x) + config.shift

    def change(n: int) -> None:
        if n == 2:
            library.Config.scale = -1.0
        if n == 3:
            config.scale = 0.5
        if n == 4:
            library.gain = 7.0  # type: ignore[attr-defined]
        if n == 5:
            library.table["shift"] = 5.0
        if n == 6:
            library.Config.scaled = lambda self, x: -x

    _compare(step, change)


def test_a_class_attribute(library: ModuleType) -> None:
    def step(x: Any) -> Any:
        return x * library.Config.scale

    def change(n: int) -> None:
        library.Config.scale = 3.0 + (n > 3)

    assert _compare(step, change).last_call.kind == "whole"


def test_a_class_attribute_by_a_computed_name(library: ModuleType) -> None:
    name = "sca" + "le"

    def step(x: Any) -> Any:
        return x * getattr(library.Config, name)

    def change(n: int) -> None:
        library.Config.scale = 3.0 + (n > 3)

    _compare(step, change)


def test_a_name_of_the_module_that_is_computed(library: ModuleType) -> None:
    name = "ga" + "in"

    def step(x: Any) -> Any:
        return x * getattr(library, name)

    def change(n: int) -> None:
        library.gain = 3.0 + (n > 3)  # type: ignore[attr-defined]

    _compare(step, change)


def test_a_subclass_of_the_users(library: ModuleType) -> None:
    class Own(library.Config):  # type: ignore[name-defined]
        def scaled(self, x: Any) -> Any:
            return super().scaled(x) + 1

    own = Own()

    def step(x: Any) -> Any:
        return own.scaled(x)

    def change(n: int) -> None:
        if n == 3:
            library.Config.scale = 4.0
        if n == 5:
            library.gain = 3.0  # type: ignore[attr-defined]

    assert _compare(step, change).last_call.kind == "whole"


def test_the_first_call_with_fullgraph(library: ModuleType) -> None:
    compiled = eg.compile(lambda x: library.double(x), fullgraph=True)
    for _ in range(3):
        np.testing.assert_allclose(compiled(eg.ones(3)).numpy(), 4.0)
    assert compiled.last_call.kind == "whole"


def test_explained_before_the_first_call(library: ModuleType) -> None:
    compiled = eg.compile(lambda x: library.double(x))
    assert "kernel" in str(compiled.explain(eg.ones(3)))


def test_a_profiler_stays_installed(library: ModuleType) -> None:
    seen: list[str] = []

    def profiler(frame: Any, event: str, argument: Any) -> None:
        seen.append(frame.f_code.co_name)

    compiled = eg.compile(lambda x: library.double(x))
    sys.setprofile(profiler)
    try:
        compiled(eg.ones(3))
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert "helper" in seen


def test_chains_of_attributes() -> None:
    def step(x: Any) -> Any:
        import torch as t

        if isinstance(x, (t.Tensor, np.ma.core.MaskedArray)) or hasattr(sys, "abc"):
            library_calls.value = 3  # type: ignore[attr-defined]
        return [time.x for _ in x], np

    uses = uses_of(step.__code__)
    assert uses["torch"] == {("Tensor",)}
    assert uses["np"] == {("ma", "core", "MaskedArray"), ()}
    assert uses["sys"] == {("abc",)}
    assert uses["library_calls"] == {("value",)}
    assert uses["time"] == {("x",)}


def _types_of(library: ModuleType, name: str) -> Any:
    held: Any = library
    for part in name.split("."):
        held = getattr(held, part)
    return held


@pytest.mark.parametrize(
    ("module", "name"),
    [("torch", "Tensor"), ("torch", "nn.Module"), ("scipy.sparse", "csr_matrix"),
     ("matplotlib.pyplot", "Figure"), ("jax", "Array"),
     ("numpy", "ma.MaskedArray")],
)  # fmt: skip
def test_classes_of_large_libraries(module: str, name: str) -> None:
    """The walk does not go into the library, however the class is reached."""
    library = pytest.importorskip(module)
    model = eg.nn.Linear(3, 2)
    optimizer = eg.optim.SGD(model.parameters(), lr=0.1)
    kind = _types_of(library, name)
    kinds = {"all": (kind, int)}

    def step(x: Any) -> Any:
        if isinstance(x, kind) or type(x) in kinds["all"] or x is getattr(kind, "nothing", None):
            return None
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    state = PythonState(step, (eg.ones(4, 3),))
    assert len(state.seen) < 2_000
    compiled = eg.compile(step)
    compiled(eg.ones(4, 3))
    assert compiled.last_call.kind == "whole", compiled.last_call.reason
