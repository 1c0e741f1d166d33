"""Curves over steps as inline SVG, which the page's script can zoom into.

A chart has room above its highest value, so that no curve coincides with the frame, a legend, and
texts in units that people read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import count
from typing import NamedTuple

from evergrad.html.style import SERIES

_WIDTH, _HEIGHT = 560, 250
_FRAME = {"left": 74, "right": 534, "top": 12, "bottom": 224}
_HEADROOM = 0.08
_NAMES = ("B", "KiB", "MiB", "GiB", "TiB")
_numbers = count(1)

Point = tuple[float, float]


class Series(NamedTuple):
    """One curve: faint ones stand behind others, dotted ones have a mark at each value."""

    name: str
    points: Sequence[Point]
    colour: str = SERIES[0]
    faint: bool = False
    dots: bool = False
    dashed: bool = False


class Chart(NamedTuple):
    """Curves that share their axes."""

    title: str
    series: Sequence[Series]
    x: str = "step"
    unit: str = ""  # of values; "bytes" chooses its prefix
    from_zero: bool = True

    def html(self) -> str:
        """A figure with caption, drawing and legend; nothing if there are no points."""
        shown = [s._replace(points=_finite(s.points)) for s in self.series]
        chart = self._replace(series=[s for s in shown if s.points])
        return chart._figure() if chart.series else ""

    def _figure(self) -> str:
        clip = f"clip{next(_numbers)}"
        data = json.dumps(self._data(clip), allow_nan=False)
        legend = "".join(
            f'<span style="--of:{s.colour}">{escape(s.name)}</span>'
            for s in self.series
            if not s.faint
        )
        return (
            f'<figure data-chart="{escape(data)}"><figcaption>{escape(self.title)}</figcaption>'
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(self.title)}">'
            f'<clipPath id="{clip}"><rect x="{_FRAME["left"]}" y="0" height="{_HEIGHT}" '
            f'width="{_FRAME["right"] - _FRAME["left"]}"/></clipPath>'
            f"<g>{''.join(self._drawn())}</g>"
            f'<text x="{_FRAME["left"] - 18}" y="{_FRAME["bottom"] + 18}" text-anchor="end">'
            f'{escape(self.x)}</text></svg><div class="legend">{legend}'
            '<span class="hint" style="--of:transparent">'
            "drag or wheel: zoom, double click: all</span></div></figure>"
        )

    def _data(self, clip: str) -> dict[str, object]:
        return {
            "frame": _FRAME, "x": self.x, "unit": self.unit, "zero": self.from_zero,
            "clip": f"url(#{clip})",
            "series": [
                {"name": s.name, "points": s.points, "colour": s.colour, "dots": s.dots,
                 **_stroke(s)}
                for s in self.series
            ],
        }  # fmt: skip

    def _drawn(self) -> Iterable[str]:
        """What is shown before, or without, the script."""
        points = [point for s in self.series for point in s.points]
        x = _Axis(*_ends(p[0] for p in points), _FRAME["left"], _FRAME["right"])
        low, high = _ends(p[1] for p in points)
        low = min(0.0, low) if self.from_zero else low
        room = (high - low or abs(high) or 1.0) * _HEADROOM
        bottom = low if self.from_zero and low == 0 else low - room
        y = _Axis(bottom, high + room, _FRAME["bottom"], _FRAME["top"])
        unit = self.unit if self.unit == "bytes" else ""
        for value in ticks(y.low, y.high, 4, unit):
            yield (
                f'<line class="grid" x1="{_FRAME["left"]}" x2="{_FRAME["right"]}" '
                f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
                f'<text x="{_FRAME["left"] - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
                f"{readable(value, unit)}</text>"
            )
        for value in ticks(x.low, x.high, 6):
            place = f'x="{x(value):.1f}" y="{_FRAME["bottom"] + 18}"'
            yield f'<text {place} text-anchor="middle">{readable(value)}</text>'
        for series in self.series:
            yield _curve(series, x, y)


class _Axis(NamedTuple):
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low or 1) * (
            self.end - self.start
        )


def _curve(series: Series, x: _Axis, y: _Axis) -> str:
    stroke = _stroke(series)
    points = [(x(a), y(b)) for a, b in series.points]
    path = "".join(f"{'L' if i else 'M'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(points))
    dots = (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{series.colour}"/>' for a, b in points)
    return (
        f'<path d="{path}" fill="none" stroke="{series.colour}" stroke-width="{stroke["width"]}" '
        f'stroke-opacity="{stroke["opacity"]}" stroke-dasharray="{stroke["dash"]}"/>'
        f"{''.join(dots) if series.dots else ''}"
    )


def _stroke(series: Series) -> dict[str, object]:
    faint = series.faint
    return {
        "width": 1 if faint or series.dashed else 1.8, "opacity": 0.35 if faint else 1,
        "dash": "5 4" if series.dashed else "none",
    }  # fmt: skip


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(float(x), float(y)) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _ends(values: Iterable[float]) -> tuple[float, float]:
    held = list(values)
    return min(held), max(held)


def ticks(low: float, high: float, most: int, unit: str = "") -> list[float]:
    """Round values between two ends, about ``most`` of them; bytes are round in KiB or MiB."""
    if unit == "bytes":
        base = 1024.0 ** max(0, math.floor(math.log2(max(abs(high), 1)) / 10))
        return [value * base for value in ticks(low / base, high / base, most)]
    raw = (high - low) / most or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def readable(value: float, unit: str = "") -> str:
    """A number as people write it: ``1,234``, ``2.50 MiB``, ``3.00e-04``."""
    if unit == "bytes":
        power = 0
        while abs(value) >= 1024 and power < len(_NAMES) - 1:
            value, power = value / 1024, power + 1
        return f"{value:.2f} {_NAMES[power]}" if power else f"{value:.0f} B"
    if value and (abs(value) < 1e-3 or abs(value) >= 1e7):
        text = f"{value:.2e}"
    else:
        is_whole = value == round(value) or abs(value) >= 1e3
        text = f"{value:,.0f}" if is_whole else f"{value:,.4g}"
    return f"{text} {unit}".rstrip()
