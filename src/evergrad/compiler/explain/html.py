"""An explanation as one HTML page.

The arena is drawn over time: a rectangle for each buffer, from the wave that defines it to the last
that reads it (its live range) and from its first byte to its last.
"""

from __future__ import annotations

from typing import Any

from evergrad import html
from evergrad.compiler.explain.text import (
    counts,
    duration,
    guards,
    heading,
    rate,
    share,
    slowest_first,
    summary,
    where,
)
from evergrad.html import Drawing
from evergrad.memory.reports import size

_HEIGHT = 360
_FEW = 8

Data = dict[str, Any]


def page(data: Data, code: dict[str, dict[str, str]]) -> str:
    """The whole explanation."""
    memory = data["memory"]
    title = f"What the compiler made of {data['function']}"
    peak, bound = size(memory["peak"]), size(memory["lower_bound"])
    graphs = _graph("As captured", data["captured"]) + _graph(
        "After the passes", data["simplified"]
    )
    parts = [
        html.paragraph(summary(data)), _segments(data),
        html.section("Time by node, on one thread", _times(data)),
        html.section(f"Memory: arena of {peak}, lower bound {bound} (live at once)",
                     drawing(memory) + peak_table(memory)),
        html.section("NumPy calls", _calls(data)),
        html.section("Guards", _folded("Checked at each call", "\n".join(guards(data)))),
        html.section("Graphs", graphs), *map(_pass, data["passes"]),
        "<h2>Nodes (fusion groups and single ops), in execution order</h2>",
        *map(_node, data["nodes"]),
        "<h2>Kernels</h2>", *(_code(name, held) for name, held in code.items()),
    ]  # fmt: skip
    return html.page(title, parts)


def fragment(data: Data) -> str:
    """The explanation for the cell of a notebook: the summary, the slowest nodes, the arena."""
    return html.fragment(
        [html.paragraph(summary(data)), _times(data, _FEW), drawing(data["memory"])]
    )


def plan_fragment(memory: Data) -> str:
    """A memory plan for the cell of a notebook."""
    peak, bound = size(memory["peak"]), size(memory["lower_bound"])
    head = f"arena of {peak}, lower bound {bound} (live at once)"
    return html.fragment([html.paragraph(head), drawing(memory), peak_table(memory, _FEW)])


# -- the drawing --------------------------------------------------------------------------------


def drawing(memory: Data) -> str:
    """The arena over time."""
    if not memory["buffers"]:
        return "<p>The arena is empty: no intermediate values.</p>"
    frame = Drawing.up_to(max(memory["peak"], 1), _HEIGHT)
    across = (frame.width - frame.left) / max(memory["waves"], 1)
    drawn = frame.grid(memory["peak"], size, ("wave 0", str(memory["waves"] - 1)))
    for n, buffer in enumerate(memory["buffers"]):
        drawn.append(_rectangle(buffer, html.SERIES[n % len(html.SERIES)], across, frame))
    return f"<figure>{frame.svg('the arena', drawn)}</figure>"


def _rectangle(buffer: Data, colour: str, across: float, frame: Drawing) -> str:
    x = frame.left + buffer["first_wave"] * across
    width = (buffer["last_wave"] - buffer["first_wave"] + 1) * across
    height = max(buffer["bytes"] * frame.scale, 0.5)
    words = (
        f"{buffer['label']}: {size(buffer['bytes'])} at {buffer['offset']:,}, waves "
        f"{buffer['first_wave']} to {buffer['last_wave']}\n{html.shortened(buffer['location'])}"
    )
    top = frame.y(buffer["offset"]) - height
    return html.rectangle("part", x, top, width, height, words, colour)


# -- the tables ---------------------------------------------------------------------------------


def _times(data: Data, most: int | None = None) -> str:
    rows = [
        (duration(u["seconds"]), share(u, data), rate(u), u["kind"], u["label"], where(u))
        for u in slowest_first(data["nodes"])[:most]
    ]
    return html.table(("time", "share", "rate", "kind", "node", "line"), rows, 3)


def peak_table(memory: Data, most: int | None = None) -> str:
    """The live buffers at the peak."""
    live = [memory["buffers"][n] for n in memory["at_peak"][:most]]
    rows = [(size(b["bytes"]), b["label"], html.shortened(b["location"])) for b in live]
    return html.table(("bytes", "live buffers at the peak", "line"), rows, 1)


def _segments(data: Data) -> str:
    rows = [(str(part["equations"]), html.shortened(part["end"])) for part in data["segments"]]
    title = "Segments of the path that the data has taken; what follows is about the last one"
    table = html.table(("equations", "up to"), rows, 1)
    return html.section(title, table) if rows else ""


def _calls(data: Data) -> str:
    rows = [
        (duration(c["seconds"]), c["op"], c["type"], html.shortened(c["location"]))
        for c in slowest_first(data["calls"])
    ]
    if not rows:
        return "<p>None: all nodes are native kernels.</p>"
    return html.table(("time", "op", "result", "line"), rows, 1)


def _graph(title: str, graph: Data) -> str:
    head = f"{title}: {graph['equations']} equations ({counts(graph)})"
    return _folded(head, graph["text"])


def _pass(found: Data) -> str:
    head = f"After {found['name']}: {found['equations']} equations"
    return _folded(head, "unchanged" if found["text"] is None else found["text"])


def _node(node: Data) -> str:
    rows = [(e["op"], e["type"], html.shortened(e["location"])) for e in node["equations"]]
    parts = [
        (str(p["wave"]), str(p["chunks"]), str(p["passes"]), size(p["scratch"]), p["kernel"])
        for p in node["instructions"]
        if p["kernel"] is not None
    ]
    tables = html.table(("op", "result", "line"), rows, 0)
    if parts:
        tables += html.table(("wave", "chunks", "passes", "scratch", "kernel"), parts, 4)
    return html.details(heading(node), tables)


def _code(name: str, held: dict[str, str]) -> str:
    return _folded(f"{name}, LLVM IR", held["ir"]) + _folded(f"{name}, assembly", held["assembly"])


def _folded(head: str, text: str) -> str:
    return html.details(head, html.preformatted(html.shortened(text)))
