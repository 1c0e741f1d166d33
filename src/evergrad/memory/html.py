"""The memory report as one HTML page: live bytes by category over time, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evergrad import html
from evergrad.extension import provides
from evergrad.html import Drawing
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
_HEIGHT = 320
_COLUMNS = 460
_ROWS = 40
_FEW = 8


@provides("memory_page")
def page(tracker: Tracker | None) -> str:
    """The whole report; without a tracker, of the live buffers."""
    if tracker is None:
        parts = [html.section("Alive now", _entries(live_buffers()))]
    else:
        title = f"Live bytes over time (peak {size(tracker.peak)})"
        parts = [
            html.section(title, _timeline(tracker)),
            html.section("Alive at the peak", _entries(grouped(tracker.alive_at_peak()))),
            html.section("By op", _usage(tracker.by_op(), "op")),
            html.section("By line", _usage(tracker.by_site(), "line")),
        ]
    return html.page("Memory of this process", [_figures(), *parts])


@provides("memory_fragment")
def fragment(tracker: Tracker | None) -> str:
    """The report for the cell of a notebook: the drawing, or what is alive now."""
    shown = _entries(live_buffers()[:_FEW]) if tracker is None else _timeline(tracker)
    return html.fragment([_categories(), shown])


def _figures() -> str:
    now = stats()
    pairs = [
        ("alive", size(now["live"])), ("buffers", f"{now['count']:,}"),
        ("most so far", size(now["peak"])), ("pooled for reuse", size(now["pooled"])),
    ]  # fmt: skip
    return html.facts([*pairs, *_shares()])


def _shares() -> list[tuple[str, str]]:
    return [(_MEANING.get(name, name), size(n)) for name, n in stats()["by_category"].items() if n]


def _categories() -> str:
    now = stats()
    rows = [(size(now["live"]), "alive"), (size(now["peak"]), "most so far")]
    return html.table(("bytes", "of"), [*rows, *((n, name) for name, n in _shares())], 1)


# -- the drawing --------------------------------------------------------------------------------


class _Sample(NamedTuple):
    """The moment with most live bytes in an interval, with its bytes by category."""

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
    frame = Drawing.up_to(top, _HEIGHT)
    xs = [frame.x((s.seconds - start) / span) for s in samples]
    ends = [*xs[1:], float(frame.width)]
    drawn = [
        *frame.grid(top, size, ("0 s", f"{span:.3g} s")),
        *_areas(samples, xs, ends, frame),
        *_hover(samples, xs, ends, frame),
    ]
    return f"<figure>{frame.svg('live bytes', drawn)}{_legend(samples)}</figure>"


def _areas(
    samples: Sequence[_Sample], xs: Sequence[float], ends: Sequence[float], frame: Drawing
) -> Iterator[str]:
    """One stacked area for each category."""

    def outline(heights: Sequence[int]) -> list[tuple[float, float]]:
        """Values that each hold until the next."""
        sides = zip(xs, ends, heights, strict=True)
        return [(x, frame.y(height)) for left, right, height in sides for x in (left, right)]

    base = [0] * len(samples)
    for name, colour in _COLOURS.items():
        if not any(sample.shares[name] for sample in samples):
            continue
        upper = [b + max(s.shares[name], 0) for b, s in zip(base, samples, strict=True)]
        yield html.polygon([*outline(upper), *reversed(outline(base))], colour)
        base = upper


def _hover(
    samples: Sequence[_Sample], xs: Sequence[float], ends: Sequence[float], frame: Drawing
) -> Iterator[str]:
    for sample, x, end in zip(samples, xs, ends, strict=True):
        width = max(end - x, 0.5)
        yield html.rectangle("over", x, 0, width, frame.height - frame.bottom, _words(sample))


def _words(sample: _Sample) -> str:
    shares = [f"  {_MEANING.get(name, name)}: {size(n)}" for name, n in sample.shares.items() if n]
    verb = {"alloc": "allocated", "free": "released", "hold": "held", "scratch": "used"}
    done = f"{verb[sample.event.kind]} {size(abs(sample.event.nbytes))}: {sample.event.origin.op}"
    return "\n".join([f"{sample.seconds:.4g} s: {size(sample.live)} live", *shares, done])


def _legend(samples: Sequence[_Sample]) -> str:
    used = [name for name in _COLOURS if any(s.shares[name] for s in samples)]
    return html.legend((_COLOURS[name], _MEANING.get(name, name)) for name in used)


# -- the tables ---------------------------------------------------------------------------------


def _entries(entries: Sequence[Entry]) -> str:
    rows = [
        (size(e.nbytes), f"{e.buffers:,}", e.category, e.type, e.op, html.shortened(e.site))
        for e in entries[:_ROWS]
    ]
    head = ("bytes", "buffers", "category", "type", "op", "line")
    return html.table(head, rows, 2) + _rest(len(entries))


def _usage(usage: dict[str, Usage], name: str) -> str:
    rows = [
        (size(u.at_peak), size(u.allocated), f"{u.buffers:,}", html.shortened(text))
        for text, u in list(usage.items())[:_ROWS]
    ]
    return html.table(("at the peak", "allocated", "buffers", name), rows, 3) + _rest(len(usage))


def _rest(count: int) -> str:
    return f"<p>and {count - _ROWS:,} more</p>" if count > _ROWS else ""
