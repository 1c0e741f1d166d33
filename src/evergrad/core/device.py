"""Devices: the CPU, and PyTorch's spelling of it."""

from __future__ import annotations

from typing import Any


class Device:
    """The device of a tensor. There is one: the CPU."""

    __slots__ = ("index", "type")

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        name, _, number = str(type).partition(":")
        if name not in ("cpu", "meta"):
            raise RuntimeError(
                f"evergrad computes on the CPU; there is no device {str(type)!r}. "
                "Use device='cpu', or leave it out."
            )
        self.type = name
        self.index = int(number) if number else index

    def __repr__(self) -> str:
        return f"device(type='{self.type}')"

    def __str__(self) -> str:
        return self.type

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.partition(":")[0] == self.type
        return isinstance(other, Device) and other.type == self.type

    def __hash__(self) -> int:
        return hash(self.type)


CPU = Device()
