"""``torch.classes``: native classes of PyTorch's extensions. None can be loaded."""

from __future__ import annotations

from typing import Any, NoReturn

__path__: list[str] = []


def load_library(path: str) -> NoReturn:
    raise OSError(f"evergrad loads no native libraries of PyTorch: {path}")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"evergrad has no torch.classes.{name}")
