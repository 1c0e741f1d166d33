"""The name of the package in printed forms: ``evergrad``, or ``torch`` under ``as_torch``."""

from __future__ import annotations

_name = "evergrad"


def package_name() -> str:
    """The name that printed element types, shapes and layouts begin with."""
    return _name


def set_package_name(name: str) -> None:
    """Change it, for the whole process."""
    global _name
    _name = name
