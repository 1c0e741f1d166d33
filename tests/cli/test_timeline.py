"""Bytes over time, drawn with characters."""

from __future__ import annotations

import pytest

from evergrad.cli.timeline import draw_timeline


def columns(drawing: str) -> list[str]:
    """The rows of the drawing, without what stands beside and below them."""
    return [line.partition("|")[2] for line in drawing.splitlines() if "|" in line]


def test_heights_are_those_of_the_bytes() -> None:
    drawing = draw_timeline([0, 256, 512, 1024], height=4, blocks=" #")
    assert columns(drawing) == ["   #", "   #", "  ##", " ###"]


def test_parts_of_a_row_are_drawn_as_such() -> None:
    assert columns(draw_timeline([8, 4, 1, 0], height=1, blocks=" ▁▂▃▄▅▆▇█")) == ["█▄▁"]


def test_the_most_of_several_waves_is_what_is_drawn() -> None:
    drawing = draw_timeline([1, 9, 1, 1, 1, 1, 1, 1], width=4, height=1, blocks=" #")
    assert columns(drawing) == ["#"]


def test_sides_are_labelled() -> None:
    drawing = draw_timeline([1024] * 100, width=40, height=2, blocks=" #")
    lines = drawing.splitlines()
    assert lines[0].startswith("1.00 KiB |") and lines[2].startswith("     0 B +")
    assert lines[3].split() == ["wave", "0", "99"]
    assert len(lines[3]) == len(lines[0])


@pytest.mark.parametrize("alive", [[], [0, 0]])
def test_nothing_is_told_as_such(alive: list[int]) -> None:
    assert draw_timeline(alive) == "nothing is kept between kernels"
