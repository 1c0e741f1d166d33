"""Texts with numbers of a session that are made when they are put out, after the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

# A number in a text, until the text is given to the function that puts it out.
_MARK = re.compile("\U000f0000([0-9]+)\U000f0001")


class FormattedText:
    """A text of constant parts and numbers, each with its format."""

    __slots__ = ("numbers", "parts", "specs")

    def __init__(
        self, parts: Sequence[str], numbers: Sequence[object], specs: Sequence[str]
    ) -> None:
        """There is one part more than numbers."""
        self.parts: list[str] = list(parts)
        self.numbers = list(numbers)
        self.specs: list[str] = list(specs)

    def text(self, numbers: Sequence[object]) -> str:
        """The text with these numbers."""
        shown = [format(n, spec) for n, spec in zip(numbers, self.specs, strict=True)]
        made = [part for pair in zip(self.parts, shown, strict=False) for part in pair]
        return "".join([*made, self.parts[-1]])

    def with_values(self, shown: Callable[[object], object]) -> str:
        return self.text([shown(number) for number in self.numbers])


class Marks:
    """The numbers that stand in texts as marks."""

    def __init__(self) -> None:
        self.numbers: list[tuple[Any, str]] = []

    def mark(self, number: object, spec: str) -> str:
        self.numbers.append((number, spec))
        return f"\U000f0000{len(self.numbers) - 1}\U000f0001"

    def decoded(self, value: object) -> object:
        """A text with marks as a :class:`FormattedText`; other values as they are."""
        if type(value) is not str or not self.numbers:
            return value
        parts = _MARK.split(value)
        indices = [int(part) for part in parts[1::2]]
        if not indices or any(index >= len(self.numbers) for index in indices):
            return value
        found = [self.numbers[index] for index in indices]
        return FormattedText(parts[::2], [n for n, _ in found], [spec for _, spec in found])


def has_mark(text: str) -> bool:
    return _MARK.search(text) is not None
