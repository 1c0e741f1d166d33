"""An explanation as one page: no script, nothing loaded from elsewhere.

The arena is drawn as it is over time: a rectangle for each buffer, from the wave that makes it to
the last that reads it and from its first byte to its last. Its hover text is an SVG ``<title>``.
"""

from __future__ import annotations

from html import escape
from typing import Any

from evergrad.compiler.explain.text import (
    conditions,
    counts,
    duration,
    heading,
    rate,
    share,
    slowest_first,
    summary,
    where,
)
from evergrad.memory.html import table
from evergrad.memory.reports import size

_COLOURS = ("#4c78a8", "#72b7b2", "#b279a2", "#f2a93b", "#54a24b", "#d67195", "#9aa5b1", "#e45756")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1000, 360, 86, 24

STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #8884; }
th { font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
td code { font-size: 12px; overflow-wrap: anywhere; }
pre { font-size: 12px; overflow-x: auto; } summary { cursor: pointer; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; }
.grid { stroke: currentColor; stroke-opacity: .15; } .buffer { fill-opacity: .8; }
.buffer:hover { fill-opacity: 1; stroke: currentColor; }
"""

Data = dict[str, Any]


def page(data: Data, code: dict[str, dict[str, str]]) -> str:
    """The whole explanation."""
    memory = data["memory"]
    title = f"evergrad: {data['function']}"
    parts = [
        f"<h1>{escape(title)}</h1><p>{escape(summary(data))}</p>",
        "<h2>Time by unit, on one thread</h2>", _times(data),
        f"<h2>Memory: {size(memory['peak'])}, of which {size(memory['lower_bound'])} are alive "
        "at once</h2>",
        drawing(memory), peak_table(memory),
        "<h2>NumPy calls</h2>", _calls(data),
        "<h2>Conditions</h2>", _folded("What must stay as it is", "\n".join(conditions(data))),
        "<h2>Graphs</h2>",
        _graph("As captured", data["captured"]), _graph("After the passes", data["simplified"]),
        "<h2>Units in their order</h2>", *map(_unit, data["units"]),
        "<h2>Kernels</h2>", *(_code(name, held) for name, held in code.items()),
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"{''.join(parts)}</body></html>\n"
    )


# -- the drawing --------------------------------------------------------------------------------


def drawing(memory: Data) -> str:
    """The arena over time."""
    if not memory["buffers"]:
        return "<p>Nothing is kept between kernels.</p>"
    across = (_WIDTH - _LEFT) / max(memory["waves"], 1)
    scale = (_HEIGHT - _BOTTOM) / max(memory["peak"], 1)
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="the arena">']
    parts += _grid(memory, scale)
    parts += [
        _rectangle(b, _COLOURS[n % len(_COLOURS)], across, scale)
        for n, b in enumerate(memory["buffers"])
    ]
    return "".join([*parts, "</svg>"])


def _grid(memory: Data, scale: float) -> list[str]:
    lines = []
    for quarter in range(5):
        nbytes = memory["peak"] * quarter // 4
        y = _HEIGHT - _BOTTOM - nbytes * scale
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{max(y + 4, 12):.1f}" text-anchor="end">'
            f"{size(nbytes)}</text>"
        )
    return [
        *lines,
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">wave 0</text>',
        f'<text x="{_WIDTH}" y="{_HEIGHT - 6}" text-anchor="end">{memory["waves"] - 1}</text>',
    ]


def _rectangle(buffer: Data, colour: str, across: float, scale: float) -> str:
    x = _LEFT + buffer["first_wave"] * across
    width = (buffer["last_wave"] - buffer["first_wave"] + 1) * across
    height = max(buffer["bytes"] * scale, 0.5)
    y = _HEIGHT - _BOTTOM - buffer["offset"] * scale - height
    words = (
        f"{buffer['label']}: {size(buffer['bytes'])} at {buffer['offset']:,}, waves "
        f"{buffer['first_wave']} to {buffer['last_wave']}\n{buffer['location']}"
    )
    return (
        f'<rect class="buffer" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}"><title>{escape(words)}</title></rect>'
    )


# -- the tables ---------------------------------------------------------------------------------


def _times(data: Data) -> str:
    rows = [
        (duration(u["seconds"]), share(u, data), rate(u), u["kind"], u["label"], where(u))
        for u in slowest_first(data["units"])
    ]
    return table(("time", "share", "rate", "kind", "unit", "line"), rows, 3)


def peak_table(memory: Data) -> str:
    """Who is alive when most bytes are."""
    living = [memory["buffers"][n] for n in memory["at_peak"]]
    rows = [(size(b["bytes"]), b["label"], b["site"]) for b in living]
    return table(("bytes", "alive at the peak", "line"), rows, 1)


def _calls(data: Data) -> str:
    rows = [
        (duration(c["seconds"]), c["op"], c["type"], c["site"])
        for c in slowest_first(data["calls"])
    ]
    if not rows:
        return "<p>None: everything is native.</p>"
    return table(("time", "op", "result", "line"), rows, 1)


def _graph(title: str, graph: Data) -> str:
    head = f"{title}: {graph['equations']} equations ({counts(graph)})"
    return _folded(head, graph["text"])


def _unit(unit: Data) -> str:
    rows = [(e["op"], e["type"], e["site"]) for e in unit["equations"]]
    parts = [
        (str(p["wave"]), str(p["chunks"]), str(p["passes"]), size(p["scratch"]), p["kernel"])
        for p in unit["instructions"]
        if p["kernel"] is not None
    ]
    tables = table(("op", "result", "line"), rows, 0)
    if parts:
        tables += table(("wave", "chunks", "passes", "scratch", "kernel"), parts, 4)
    return f"<details><summary>{escape(heading(unit))}</summary>{tables}</details>"


def _code(name: str, held: dict[str, str]) -> str:
    return _folded(f"{name}, LLVM IR", held["ir"]) + _folded(f"{name}, assembly", held["assembly"])


def _folded(head: str, text: str) -> str:
    return f"<details><summary>{escape(head)}</summary><pre>{escape(text)}</pre></details>"
