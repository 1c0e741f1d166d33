"""Reports as one HTML page each: no script, nothing loaded from elsewhere.

Owns what pages share: escaping, the skeleton, the style, tables, and drawings as inline SVG whose
hover texts are ``<title>`` elements. Knows nothing of what is reported; it stands at the bottom of
the layers because reports of memory, of compiled programs and of training runs use it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import NamedTuple

__all__ = [
    "Drawing", "details", "escape", "image", "page", "paragraph", "polygon", "preformatted",
    "rectangle", "section", "table",
]  # fmt: skip

_STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #8884; }
th { font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
td code { font-size: 12px; overflow-wrap: anywhere; }
pre { font-size: 12px; overflow-x: auto; } summary { cursor: pointer; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; }
.grid { stroke: currentColor; stroke-opacity: .15; }
"""


def page(title: str, parts: Iterable[str], style: str = "") -> str:
    """A whole page of parts that are HTML already; ``style`` adds to the common one."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>"
        f"{''.join(parts)}</body></html>\n"
    )


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

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(
            f'<{tag} class="n">{escape(text)}</{tag}>'
            if i < numbers
            else f"<{tag}><code>{escape(text)}</code></{tag}>"
            for i, text in enumerate(cells)
        ) + "</tr>"  # fmt: skip

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"


def image(png: bytes, title: str, kind: str = "") -> str:
    """A picture inside the page."""
    attribute = f'class="{kind}" ' if kind else ""
    data = base64.b64encode(png).decode()
    return f'<img {attribute}alt="{escape(title)}" src="data:image/png;base64,{data}">'


# -- drawings -----------------------------------------------------------------------------------


class Drawing(NamedTuple):
    """The frame of a drawing: room for labels at the left and the bottom, values upwards."""

    height: int
    scale: float
    width: int = 1000
    left: int = 86
    bottom: int = 24

    @classmethod
    def up_to(cls, value: float, height: int) -> Drawing:
        """A frame that the given value fills."""
        return cls(height, (height - cls._field_defaults["bottom"]) / value)

    def x(self, share: float) -> float:
        """Where a share of the width is."""
        return self.left + share * (self.width - self.left)

    def y(self, value: float) -> float:
        """How far from the top a value is."""
        return self.height - self.bottom - value * self.scale

    def svg(self, label: str, parts: Iterable[str]) -> str:
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
        )

    def grid(self, top: int, text: Callable[[int], str], ends: tuple[str, str]) -> list[str]:
        """Lines at the quarters of the value ``top`` with their texts, and both ends' labels."""
        lines = []
        for quarter in range(5):
            value = top * quarter // 4
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
