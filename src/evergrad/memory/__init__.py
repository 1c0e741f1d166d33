"""Accounted memory: how many bytes live, who made them, and proof that they stay the same.

=====================  =========================================================================
``stats()``            live, peak and pooled bytes, buffers, live bytes by category
``reset_peak()``       count the peak from now on
``track()``            record every allocation and release: peak, timeline, by op, by line
``report()``           the findings as text, JSON or a page
``steady()``           raise if a step leaves memory behind, naming what stayed
``limit()``            let allocations beyond a number of bytes fail
``trim()``             give pooled buffers back to the system
``poison()``           fill released memory with a pattern
=====================  =========================================================================
"""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_names

if TYPE_CHECKING:
    from evergrad.memory.pool import trim
    from evergrad.memory.reports import report, reset_peak, stats
    from evergrad.memory.steady_state import Steady, steady
    from evergrad.memory.switches import limit, poison
    from evergrad.memory.tracking import Allocation, Event, Tracker, Usage, track

__getattr__ = lazy_names(
    __name__,
    {
        "pool": ("trim",),
        "reports": ("report", "reset_peak", "stats"),
        "steady_state": ("Steady", "steady"),
        "switches": ("limit", "poison"),
        "tracking": ("Allocation", "Event", "Tracker", "Usage", "track"),
    },
)

__all__ = [
    "Allocation",
    "Event",
    "Steady",
    "Tracker",
    "Usage",
    "limit",
    "poison",
    "report",
    "reset_peak",
    "stats",
    "steady",
    "track",
    "trim",
]
