"""Reports of the ledger and of a tracker: text, JSON, and out-of-memory errors."""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from evergrad.extension import ExtensionPoint, provides
from evergrad.memory.ledger import CATEGORIES, LEDGER
from evergrad.memory.tracking import Allocation, Tracker, Usage, active_tracker, is_ours, origin

_ROWS = 12

_storage_class: ExtensionPoint[[], object] = ExtensionPoint("storage_class")
_html_page: ExtensionPoint[[Tracker | None], str] = ExtensionPoint("memory_page")


def stats() -> dict[str, Any]:
    """Live, peak and pooled bytes, the number of live buffers, and live bytes by category.

    >>> before = eg.memory.stats()["live"]
    >>> x = eg.ones(1000)
    >>> eg.memory.stats()["live"] - before
    4000
    """
    return {
        "live": LEDGER.live,
        "peak": LEDGER.peak,
        "pooled": LEDGER.pooled,
        "count": LEDGER.count,
        "by_category": LEDGER.categories(),
    }


def reset_peak() -> None:
    """Restart the peak from the present live bytes.

    >>> eg.memory.reset_peak()
    >>> stats = eg.memory.stats()
    >>> stats["peak"] == stats["live"]
    True
    """
    LEDGER.peak = LEDGER.live


class Entry(NamedTuple):
    """Buffers of one type, category and allocation site, live at the same time."""

    nbytes: int
    buffers: int
    category: str
    type: str
    op: str
    site: str


def grouped(allocations: Iterable[Allocation]) -> list[Entry]:
    """Allocations grouped by category, type, op and allocation site; most bytes first."""
    sums: dict[tuple[str, ...], list[int]] = {}
    for a in allocations:
        total = sums.setdefault((a.category, a.type, a.op, a.site), [0, 0])
        total[0] += a.nbytes
        total[1] += 1
    found = [Entry(nbytes, buffers, *key) for key, (nbytes, buffers) in sums.items()]
    return sorted(found, reverse=True)


def live_buffers() -> list[Entry]:
    """All live buffers by type and category, found among all objects of the collector."""
    storage_class = _storage_class()
    sums: dict[tuple[str, str], list[int]] = {}
    thing: Any
    for thing in gc.get_objects():
        # type(), because the __class__ of a foreign object may be a property. A storage that
        # another thread is constructing has no size yet.
        if type(thing) is storage_class and hasattr(thing, "nbytes") and thing.nbytes:
            total = sums.setdefault((CATEGORIES[thing.category], str(thing.type)), [0, 0])
            total[0] += thing.nbytes
            total[1] += 1
    found = [Entry(nbytes, buffers, *key, "", "") for key, (nbytes, buffers) in sums.items()]
    return sorted(found, reverse=True)


# -- reports ------------------------------------------------------------------------------------


@provides("memory_report")
def report(format: str = "text", *, tracker: Tracker | None = None) -> str:
    """Live memory by category: ``"text"``, ``"json"`` or a self-contained ``"html"`` page.

    With a tracker (by default the running one) also its peak, its timeline, and the allocations by
    op and line; without one, the live buffers.

    Args:
        format: ``"text"`` (default), ``"json"`` or ``"html"``
        tracker: what is reported besides; default the one that is recording

    >>> "live" in eg.memory.report()
    True
    """
    tracker = active_tracker() if tracker is None else tracker
    if format == "text":
        return "\n".join(_text(tracker))
    if format == "json":
        return json.dumps(_data(tracker), indent=1)
    if format == "html":
        return _html_page(tracker)
    raise ValueError(f"format={format!r}; a report comes as 'text', 'json' or 'html'")


def _text(tracker: Tracker | None) -> list[str]:
    lines = _figures()
    if tracker is None:
        return [*lines, "", "alive now", *_entry_lines(live_buffers())]
    return [
        *lines,
        "",
        f"alive at the peak of the tracked part: {size(tracker.peak)}",
        *_entry_lines(grouped(tracker.alive_at_peak())),
        "",
        "by op",
        *_usage_lines(tracker.by_op()),
        "",
        "by line",
        *_usage_lines(tracker.by_site()),
    ]


def _figures() -> list[str]:
    now = stats()
    lines = [
        f"live {size(now['live'])} in {now['count']:,} buffers, peak {size(now['peak'])}, "
        f"pooled {size(now['pooled'])}"
    ]
    shares = sorted(now["by_category"].items(), key=lambda item: -item[1])
    return lines + [f"{size(nbytes):>12}  {name}" for name, nbytes in shares if nbytes]


def _entry_lines(entries: Sequence[Entry], rows: int = _ROWS) -> list[str]:
    lines = []
    for e in entries[:rows]:
        maker = f"  {e.op}" if e.op else ""
        place = f"  {e.site}" if e.site else ""
        what = f"{e.buffers} x {e.type}" if e.buffers > 1 else e.type
        lines.append(f"{size(e.nbytes):>12}  {e.category:<9}  {what}{maker}{place}".rstrip())
    return lines + _rest([e.nbytes for e in entries[rows:]])


def _usage_lines(usage: dict[str, Usage]) -> list[str]:
    lines = [
        f"{size(u.at_peak):>12}  of {size(u.allocated):>12} in {u.buffers:,} buffers  {name}"
        for name, u in list(usage.items())[:_ROWS]
    ]
    return lines + _rest([u.at_peak for u in list(usage.values())[_ROWS:]])


def _rest(sizes: Sequence[int]) -> list[str]:
    return [f"{size(sum(sizes)):>12}  in {len(sizes):,} more"] if sizes else []


def _data(tracker: Tracker | None) -> dict[str, object]:
    if tracker is None:
        return {**stats(), "alive": [e._asdict() for e in live_buffers()]}
    return {
        **stats(),
        "tracked_peak": tracker.peak,
        "alive_at_peak": [e._asdict() for e in grouped(tracker.alive_at_peak())],
        "by_op": {name: u._asdict() for name, u in tracker.by_op().items()},
        "by_site": {name: u._asdict() for name, u in tracker.by_site().items()},
        "timeline": [
            {"seconds": e.seconds, "kind": e.kind, "bytes": e.nbytes, "live": e.live,
             "op": e.origin.op}
            for e in list(tracker.timeline)
        ],
    }  # fmt: skip


def size(nbytes: int) -> str:
    """``1.50 MiB``; small numbers to the byte."""
    if abs(nbytes) < 1024:
        return f"{nbytes} B"
    value, units = nbytes / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.2f} {units[0]}"


# -- errors -------------------------------------------------------------------------------------


class OutOfMemoryError(MemoryError):
    """A memory error with a report of the live memory."""


def out_of_memory(message: str) -> MemoryError:
    """A memory error with the failed allocation and a report of the live memory."""
    tracker = active_tracker()
    lines = [message, *_figures()]
    try:
        if tracker is None:
            lines += ["alive now", *_entry_lines(live_buffers(), 5)]
        else:
            entries = grouped(list(tracker.alive.values()))
            lines += ["alive, allocated while tracking", *_entry_lines(entries, 5)]
    except MemoryError:
        lines.append("there is not enough memory left to list the live buffers")
    return OutOfMemoryError("\n".join(lines))


def described(error: MemoryError) -> MemoryError:
    """The error with a report of the live memory and the op that failed."""
    if isinstance(error, OutOfMemoryError):
        return error
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_ours(frame)]
    op = origin(frames[-1] if frames else None).op
    return out_of_memory(f"{op} could not allocate memory: {error}")
