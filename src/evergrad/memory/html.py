"""A memory report as one page: no script, nothing loaded from elsewhere.

The timeline is an inline drawing of live bytes by category; its hover text is that of the SVG
standard, a ``<title>`` for each stretch of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from evergrad.extension import provides
from evergrad.memory.reports import Entry, grouped, live_buffers, size, stats
from evergrad.memory.tracking import Event, Tracker, Usage

_COLOURS = {
    "before": "#9aa5b1",
    "parameter": "#4c78a8",
    "optimizer": "#72b7b2",
    "data": "#b279a2",
    "gradient": "#e45756",
    "saved": "#f2a93b",
    "other": "#54a24b",
    "backward": "#d67195",
}
_MEANING = {
    "before": "alive before tracking",
    "backward": "cotangents and scratch in backward",
    "saved": "saved for backward",
}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 1000, 320, 86, 24
_COLUMNS = 460
_ROWS = 40

_STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #8884; }
th { font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
td code { font-size: 12px; overflow-wrap: anywhere; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1em; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; }
.grid { stroke: currentColor; stroke-opacity: .15; } .hover { fill: transparent; }
.hover:hover { fill: currentColor; fill-opacity: .12; }
"""


@provides("memory_page")
def page(tracker: Tracker | None) -> str:
    """The whole report; without a tracker, of what is alive now."""
    if tracker is None:
        parts = ["<h2>Alive now</h2>", _entries(live_buffers())]
    else:
        parts = [
            f"<h2>Live bytes over time (peak {size(tracker.peak)})</h2>",
            _timeline(tracker),
            "<h2>Alive at the peak</h2>",
            _entries(grouped(tracker.alive_at_peak())),
            "<h2>By op</h2>",
            _usage(tracker.by_op(), "op"),
            "<h2>By line</h2>",
            _usage(tracker.by_site(), "line"),
        ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>evergrad memory</title><style>{_STYLE}</style></head><body>"
        f"<h1>Memory</h1>{_figures()}{''.join(parts)}</body></html>\n"
    )


def _figures() -> str:
    now = stats()
    shares = ", ".join(f"{name} {size(n)}" for name, n in now["by_category"].items() if n)
    return (
        f"<p>live {size(now['live'])} in {now['count']:,} buffers, peak {size(now['peak'])}, "
        f"pooled {size(now['pooled'])}</p><p>{escape(shares)}</p>"
    )


# -- the drawing --------------------------------------------------------------------------------


class _Sample(NamedTuple):
    """The highest moment of a stretch of time, with its bytes by category."""

    seconds: float
    live: int
    shares: dict[str, int]
    event: Event


def _samples(tracker: Tracker) -> list[_Sample]:
    """At most one moment for each column of the drawing."""
    events = list(tracker.timeline)
    if not events:
        return []
    start = events[0].seconds
    span = events[-1].seconds - start or 1.0
    shares = dict.fromkeys(_COLOURS, 0)
    shares["before"] = tracker.live_at_start
    highest: dict[int, _Sample] = {}
    for event in events:
        category = _category(event)
        shares[category] += event.nbytes
        column = min(int((event.seconds - start) / span * _COLUMNS), _COLUMNS - 1)
        held = highest.get(column)
        if held is None or event.live > held.live:
            highest[column] = _Sample(event.seconds, event.live, dict(shares), event)
        if event.kind == "scratch":
            shares[category] -= event.nbytes
    return list(highest.values())


def _category(event: Event) -> str:
    if event.kind in ("hold", "scratch"):
        return "backward"
    return "before" if event.allocation is None else event.allocation.category


def _timeline(tracker: Tracker) -> str:
    samples = _samples(tracker)
    if not samples:
        return "<p>Nothing was allocated.</p>"
    start = samples[0].seconds
    span = samples[-1].seconds - start or 1.0
    top = max(sample.live for sample in samples) or 1
    xs = [_LEFT + (s.seconds - start) / span * (_WIDTH - _LEFT) for s in samples]
    scale = (_HEIGHT - _BOTTOM) / (top * 1.05)
    drawing = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="live bytes">']
    drawing += _grid(top, scale, span)
    drawing += _areas(samples, xs, scale)
    drawing += _hover(samples, xs)
    return "".join([*drawing, "</svg>", _legend(samples)])


def _grid(top: int, scale: float, span: float) -> list[str]:
    lines = []
    for quarter in range(5):
        y = _HEIGHT - _BOTTOM - top * quarter / 4 * scale
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
            f"{size(top * quarter // 4)}</text>"
        )
    return [
        *lines,
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">0 s</text>',
        f'<text x="{_WIDTH}" y="{_HEIGHT - 6}" text-anchor="end">{span:.3g} s</text>',
    ]


def _areas(samples: Sequence[_Sample], xs: Sequence[float], scale: float) -> list[str]:
    """One area for each category, standing on the one below it."""
    base = [0] * len(samples)
    areas = []
    for name, colour in _COLOURS.items():
        if not any(sample.shares[name] for sample in samples):
            continue
        upper = [b + max(s.shares[name], 0) for b, s in zip(base, samples, strict=True)]
        outline = [*_steps(xs, upper, scale), *reversed(_steps(xs, base, scale))]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
        areas.append(f'<polygon points="{points}" fill="{colour}" fill-opacity=".85"/>')
        base = upper
    return areas


def _steps(xs: Sequence[float], heights: Sequence[int], scale: float) -> list[tuple[float, float]]:
    """The outline of values that each hold until the next."""
    ends = [*xs[1:], float(_WIDTH)]
    points = []
    for x, end, height in zip(xs, ends, heights, strict=True):
        y = _HEIGHT - _BOTTOM - height * scale
        points += [(x, y), (end, y)]
    return points


def _hover(samples: Sequence[_Sample], xs: Sequence[float]) -> list[str]:
    ends = [*xs[1:], float(_WIDTH)]
    return [
        f'<rect class="hover" x="{x:.1f}" y="0" width="{max(end - x, 0.5):.1f}" '
        f'height="{_HEIGHT - _BOTTOM}"><title>{escape(_words(sample))}</title></rect>'
        for x, end, sample in zip(xs, ends, samples, strict=True)
    ]


def _words(sample: _Sample) -> str:
    shares = [f"  {_MEANING.get(name, name)}: {size(n)}" for name, n in sample.shares.items() if n]
    verb = {"alloc": "allocated", "free": "released", "hold": "held", "scratch": "used"}
    done = f"{verb[sample.event.kind]} {size(abs(sample.event.nbytes))}: {sample.event.origin.op}"
    return "\n".join([f"{sample.seconds:.4g} s: {size(sample.live)} live", *shares, done])


def _legend(samples: Sequence[_Sample]) -> str:
    used = [name for name in _COLOURS if any(s.shares[name] for s in samples)]
    return "<p>" + "".join(
        f'<span class="key" style="background:{_COLOURS[name]}"></span>{_MEANING.get(name, name)}'
        for name in used
    ) + "</p>"  # fmt: skip


# -- the tables ---------------------------------------------------------------------------------


def _entries(entries: Sequence[Entry]) -> str:
    rows = [
        (size(e.nbytes), f"{e.buffers:,}", e.category, e.type, e.op, e.site)
        for e in entries[:_ROWS]
    ]
    head = ("bytes", "buffers", "category", "type", "op", "line")
    return table(head, rows, 2) + _rest(len(entries))


def _usage(usage: dict[str, Usage], name: str) -> str:
    rows = [
        (size(u.at_peak), size(u.allocated), f"{u.buffers:,}", text)
        for text, u in list(usage.items())[:_ROWS]
    ]
    return table(("at the peak", "allocated", "buffers", name), rows, 3) + _rest(len(usage))


def _rest(count: int) -> str:
    return f"<p>and {count - _ROWS:,} more</p>" if count > _ROWS else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A table of which the first ``numbers`` columns hold numbers."""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(
            f'<{tag} class="n">{escape(text)}</{tag}>'
            if i < numbers
            else f"<{tag}><code>{escape(text)}</code></{tag}>"
            for i, text in enumerate(cells)
        ) + "</tr>"  # fmt: skip

    return f"<table>{row(head, 'th')}{''.join(row(cells, 'td') for cells in rows)}</table>"
