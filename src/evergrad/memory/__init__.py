"""Memory accounting: live bytes, the ops that allocated them, and a check that they stay flat.

=====================  =========================================================================
``stats()``            live, peak and pooled bytes, buffers, live bytes by category
``reset_peak()``       count the peak from now on
``track()``            record every allocation and release: peak, timeline, by op, by line
``report()``           the report as text, JSON or HTML
``steady()``           raise if a training step leaks, with what stayed
``limit()``            fail allocations beyond a number of live bytes
``trim()``             return pooled buffers to the system
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

if not TYPE_CHECKING:
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
