"""Reports as one HTML page each, which loads nothing from elsewhere.

Owns what pages share: escaping, the skeleton, the style, tables, charts, and drawings as inline SVG
whose hover texts are ``<title>`` elements; a script for hovering and zooming is part of the page.
Knows nothing of what is reported; it stands at the bottom of the layers because reports of memory,
of compiled programs and of training runs use it.
"""

from __future__ import annotations

import base64
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from evergrad.html.charts import Chart, Series, readable
from evergrad.html.script import SCRIPT
from evergrad.html.style import PALETTE, SERIES, STYLE

__all__ = [
    "PALETTE", "SERIES", "Chart", "Drawing", "Series", "charts", "details", "escape", "facts",
    "fragment", "image", "legend", "page", "paragraph", "polygon", "preformatted", "readable",
    "rectangle", "section", "shortened", "table",
]  # fmt: skip

_PACKAGE = Path(__file__).parents[2]  # the folder that evergrad is in


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page of parts that are HTML already, under its title."""
    end = f'<p class="foot">{escape(_origin())}</p>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{PALETTE}{STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{''.join(parts)}{end}<script>{SCRIPT}</script></body></html>\n"
    )


def _origin() -> str:
    """When and by what a page was written."""
    version = getattr(sys.modules.get("evergrad"), "__version__", "")
    when = time.strftime("%Y-%m-%d %H:%M")
    return f"Written {when} by evergrad {version} on {platform.system()} {platform.machine()}."


# A notebook has a page of its own: only tables are styled, in the notebook's colours.
_CELL = """
.evergrad table { border-collapse: collapse; } .evergrad svg { max-width: 760px; }
.evergrad td, .evergrad th { padding: .15rem .7rem; text-align: left; }
.evergrad .n { text-align: right; } .evergrad .part { fill-opacity: .82; }
.evergrad svg text { fill: currentColor; font-size: 12px; }
.evergrad .grid { stroke: currentColor; stroke-opacity: .15; }
"""


def fragment(parts: Iterable[str]) -> str:
    """Parts for the cell of a notebook: no script, and no style but for what is inside."""
    return f'<div class="evergrad"><style>{_CELL}</style>{"".join(parts)}</div>'


def shortened(text: str) -> str:
    """A text in which files of the current folder and of this package have relative paths."""
    for folder in (os.getcwd(), str(_PACKAGE), sys.prefix):
        text = text.replace(f"{folder}{os.sep}", "")
    return text


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Short facts, each a name and its value, as a row of boxes."""
    items = (f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for name, value in pairs)
    return f'<ul class="facts">{"".join(items)}</ul>'


def charts(found: Iterable[Chart]) -> str:
    """Charts side by side; nothing if all are empty."""
    drawn = "".join(chart.html() for chart in found)
    return f'<div class="charts">{drawn}</div>' if drawn else ""


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Colours and what they stand for."""
    spans = (f'<span style="--of:{colour}">{escape(name)}</span>' for colour, name in entries)
    return f'<div class="legend">{"".join(spans)}</div>'


def section(title: str, content: str) -> str:
    """A part of a page under its title; nothing at all if there is nothing in it."""
    return f"<h2>{escape(title)}</h2>{content}" if content else ""


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text, of a class that the style names."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>"


def preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def details(head: str, content: str) -> str:
    """HTML that is shown on a click at its head."""
    return f"<details><summary>{escape(head)}</summary>{content}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A table of plain texts, of which the first ``numbers`` columns hold numbers."""

    def row(cells: Sequence[str], tag: str, code: str) -> str:
        return "<tr>" + "".join(
            f'<{tag} class="n">{escape(text)}</{tag}>'
            if i < numbers
            else f"<{tag}>{code.format(escape(text))}</{tag}>"
            for i, text in enumerate(cells)
        ) + "</tr>"  # fmt: skip

    body = "".join(row(cells, "td", "<code>{}</code>") for cells in rows)
    return f'<div class="wide"><table>{row(head, "th", "{}")}{body}</table></div>'


def image(png: bytes, title: str, kind: str = "") -> str:
    """A picture inside the page."""
    attribute = f'class="{kind}" ' if kind else ""
    data = base64.b64encode(png).decode()
    return f'<img {attribute}alt="{escape(title)}" src="data:image/png;base64,{data}">'


# -- drawings -----------------------------------------------------------------------------------


_ROOM = 16  # above the largest value, so that it is not on the frame


class Drawing(NamedTuple):
    """The frame of a drawing: room for labels at the left and the bottom, values upwards."""

    height: int
    scale: float
    width: int = 1000
    left: int = 86
    bottom: int = 24

    @classmethod
    def up_to(cls, value: float, height: int) -> Drawing:
        """A frame for values up to this one, with some room above it."""
        return cls(height, (height - cls._field_defaults["bottom"] - _ROOM) / value)

    def x(self, share: float) -> float:
        """Where a share of the width is."""
        return self.left + share * (self.width - self.left)

    def y(self, value: float) -> float:
        """How far from the top a value is."""
        return self.height - self.bottom - value * self.scale

    def svg(self, label: str, parts: Iterable[str]) -> str:
        return (
            f'<svg class="drawing" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
        )

    def grid(self, top: int, text: Callable[[int], str], ends: tuple[str, str]) -> list[str]:
        """Lines up to the value ``top`` with their texts, a power of two apart, and the labels of
        both ends."""
        lines = []
        for value in range(0, top + 1, _step(top)):
            y = self.y(value)
            lines.append(
                f'<line class="grid" x1="{self.left}" x2="{self.width}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{self.left - 8}" y="{max(y + 4, 12):.1f}" text-anchor="end">'
                f"{escape(text(value))}</text>"
            )
        first, last = map(escape, ends)
        return [
            *lines,
            f'<text x="{self.left}" y="{self.height - 6}">{first}</text>',
            f'<text x="{self.width}" y="{self.height - 6}" text-anchor="end">{last}</text>',
        ]


def _step(top: int) -> int:
    """The power of two between four and eight of which lie below a value: bytes read well so."""
    return 1 << max(top.bit_length() - 3, 0)


def rectangle(
    kind: str, x: float, y: float, width: float, height: float, hover: str, fill: str = ""
) -> str:
    """A rectangle of a class that the style names, with its hover text."""
    colour = f' fill="{fill}"' if fill else ""
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}"{colour}><title>{escape(hover)}</title></rect>'
    )


def polygon(outline: Iterable[tuple[float, float]], fill: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
    return f'<polygon points="{points}" fill="{fill}" fill-opacity=".85"/>'
