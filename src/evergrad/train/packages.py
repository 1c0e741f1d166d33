"""Packages of the extra ``app``, which only training programs need."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def package(name: str) -> ModuleType:
    """Import a package (or a module of it) that may not be installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"this needs the package {name.partition('.')[0]}: pip install 'evergrad[app]'",
            name=error.name,
        ) from error
