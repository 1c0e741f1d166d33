"""An explanation as text: the summary first, then the details it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evergrad.memory.reports import size

_ROWS = 20
_PEAK_ROWS = 12
_KINDS = {
    "loop": "fused loops", "native": "other kernels", "copy": "copies", "call": "NumPy calls",
}  # fmt: skip

Data = dict[str, Any]


def text(data: Data, code: dict[str, dict[str, str]]) -> str:
    """All sections; generated code if ``code`` is given."""
    parts = [
        summary(data),
        *_segments(data),
        _times(data),
        _memory(data),
        _calls(data),
        _guards(data),
    ]
    parts += [_nodes(data), _graph("captured graph", data["captured"])]
    parts += [_graph("graph after the passes", data["simplified"])]
    parts += map(_pass, data["passes"])
    parts += [f"loops of {found['name']}\n{found['text']}" for found in data["loops"]]
    parts += [_code(name, held) for name, held in code.items()]
    return "\n\n".join(parts)


def duration(seconds: float) -> str:
    """``1.25 ms``"""
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= length:
            return f"{seconds / length:.2f} {unit}"
    return f"{seconds * 1e6:.2f} us"


def rate(node: Data) -> str:
    """The rate of a node: FLOP/s of products, bytes per second of others."""
    if node["gflops_per_second"] is not None:
        return f"{node['gflops_per_second']:.1f} GFLOP/s"
    if node["gigabytes_per_second"] is not None:
        return f"{node['gigabytes_per_second']:.1f} GB/s"
    return ""


def slowest_first(nodes: Iterable[Data]) -> list[Data]:
    return sorted(nodes, key=lambda node: -node["seconds"])


def share(node: Data, data: Data) -> str:
    return f"{node['seconds'] / data['seconds']:.1%}" if data["seconds"] else ""


def where(node: Data) -> str:
    """The source lines of a node, the last ones first."""
    lines = node["lines"][::-1]
    return ", ".join(lines[:2]) + (", ..." if len(lines) > 2 else "")


def summary(data: Data) -> str:
    """The number of nodes of each kind, and their time."""
    parts = []
    for kind, name in _KINDS.items():
        taken = [node["seconds"] for node in data["nodes"] if node["kind"] == kind]
        if taken:
            parts.append(f"{len(taken)} {name} ({duration(sum(taken))})")
    return (
        f"{data['function']}: {data['captured']['equations']} equations as "
        f"{', '.join(parts) or 'nothing to do'}; {duration(data['seconds'])} on one thread"
    )


def segments(data: Data) -> list[str]:
    """The segments of a path that decides by the data, in one line each."""
    return [
        f"{number}. {part['equations']} equations, up to: {part['end']}"
        for number, part in enumerate(data["segments"], 1)
    ]


def _segments(data: Data) -> list[str]:
    lines = segments(data)
    title = "segments of the path that the data has taken; what follows is about the last one"
    return ["\n".join([title, *(f"  {line}" for line in lines)])] if lines else []


def heading(node: Data) -> str:
    """A node in one line."""
    space = "" if node["space"] is None else f" over {node['space']}"
    return f"{node['kind']}: {node['label']}{space}, {duration(node['seconds'])}"


def guards(data: Data) -> list[str]:
    """The guards under which the program is reused."""
    return [
        "the signature (structure and types of the arguments)",
        *(f"{name} ({n} times)" if n > 1 else name for name, n in data["guards"].items()),
    ]


def _times(data: Data) -> str:
    nodes = slowest_first(data["nodes"])
    rows = [
        (duration(u["seconds"]), share(u, data), rate(u), u["kind"], u["label"], where(u))
        for u in nodes[:_ROWS]
    ]
    head = ("time", "share", "rate", "kind", "node", "line")
    return "time\n" + _table(head, rows, 3) + _rest(len(nodes), _ROWS)


def _memory(data: Data) -> str:
    memory = data["memory"]
    live = [memory["buffers"][n] for n in memory["at_peak"]]
    rows = [
        (size(b["bytes"]), f"{b['first_wave']}-{b['last_wave']}", b["label"], b["location"])
        for b in live[:_PEAK_ROWS]
    ]
    head = (
        f"memory\n  arena {size(memory['peak'])} in {len(memory['buffers'])} buffers and "
        f"{memory['waves']} waves; lower bound (live at once) {size(memory['lower_bound'])}; "
        f"outside of the arena {size(memory['outside_bytes'])}\n"
    )
    if not rows:
        return head.rstrip()
    table = _table(("bytes", "waves", "live buffers at the peak", "line"), rows, 2)
    return head + table + _rest(len(live), _PEAK_ROWS)


def _calls(data: Data) -> str:
    calls = slowest_first(data["calls"])
    if not calls:
        return "NumPy calls\n  none: all nodes are native kernels"
    rows = [(duration(c["seconds"]), c["op"], c["type"], c["location"]) for c in calls]
    return "NumPy calls\n" + _table(("time", "op", "result", "line"), rows, 1)


def _guards(data: Data) -> str:
    return "guards\n" + "\n".join(f"  {name}" for name in guards(data))


def _nodes(data: Data) -> str:
    return "nodes (fusion groups and single ops), in execution order\n" + "\n".join(
        _node(node) for node in data["nodes"]
    )


def _node(node: Data) -> str:
    lines = [f"  {heading(node)}"]
    for part in node["instructions"]:
        if part["kernel"] is not None:
            lines.append(
                f"    wave {part['wave']}: {part['label']} ({part['kernel']}), chunks "
                f"{part['chunks']}, passes {part['passes']}, scratch {size(part['scratch'])}"
            )
    lines += [f"    {e['op']} -> {e['type']}  [{e['location']}]" for e in node["equations"]]
    return "\n".join(lines)


def counts(graph: Data) -> str:
    return ", ".join(f"{op} {count}" for op, count in graph["by_op"].items())


def _graph(title: str, graph: Data) -> str:
    return f"{title}: {graph['equations']} equations\n  {counts(graph)}\n{graph['text']}"


def _pass(found: Data) -> str:
    title = f"after {found['name']}: {found['equations']} equations"
    return f"{title}, unchanged" if found["text"] is None else f"{title}\n{found['text']}"


def _code(name: str, held: dict[str, str]) -> str:
    return f"{name}, LLVM IR\n{held['ir']}\n{name}, assembly\n{held['assembly']}"


def _rest(count: int, shown: int) -> str:
    return f"\n  and {count - shown} more" if count > shown else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int) -> str:
    """Aligned columns; the first ``numbers`` of them hold numbers."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if i < numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)
