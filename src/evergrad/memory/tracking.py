"""Memory tracking: every allocation with its op and allocation site, and what is live at the peak.

Trackers are observers of the ledger and cost nothing while there is none. The op that allocates is
read off the calling frames, so the engine does not store it. Observers are called from all threads,
and from destructors at any moment, so a callback is one append or one change of a dictionary, both
atomic; everything else is computed by the reports.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.extension import ExtensionPoint
from evergrad.memory.ledger import CATEGORIES, LEDGER, OTHER, Observer

if TYPE_CHECKING:
    from evergrad.core.source_location import SourceLocation
    from evergrad.core.storage import Storage

_describe: ExtensionPoint[[SourceLocation | None], str] = ExtensionPoint("describe_location")
_fragment: ExtensionPoint[[object], str] = ExtensionPoint("memory_fragment")
_report: ExtensionPoint[..., str] = ExtensionPoint("memory_report")
# Which local variable of which function of the engine names the op, and how.
_frame_namers: ExtensionPoint[[], dict[CodeType, tuple[str, Callable[[Any], str]]]] = (
    ExtensionPoint("frame_namers")
)

# -- observers of the ledger --------------------------------------------------------------------

_observers: list[Observer] = []
_changing = threading.Lock()


class _ObserverList:
    """Calls several observers, in order."""

    def __init__(self, observers: list[Observer]) -> None:
        self._observers = tuple(observers)

    def allocated(self, storage: object) -> None:
        for observer in self._observers:
            observer.allocated(storage)

    def freed(self, storage: object) -> None:
        for observer in self._observers:
            observer.freed(storage)

    def held(self, nbytes: int) -> None:
        for observer in self._observers:
            observer.held(nbytes)

    def used(self, nbytes: int) -> None:
        for observer in self._observers:
            observer.used(nbytes)


def attach(observer: Observer, *, first: bool = False) -> None:
    """Attach an observer. One that may reject an allocation must come ``first``."""
    with _changing:
        _observers.insert(0 if first else len(_observers), observer)
        _install()


def detach(observer: Observer) -> None:
    """Detach an observer, if it is attached."""
    with _changing:
        if observer in _observers:
            _observers.remove(observer)
            _install()


def _install() -> None:
    if not _observers:
        LEDGER.observer = None
    else:
        LEDGER.observer = _observers[0] if len(_observers) == 1 else _ObserverList(_observers)


def active_tracker() -> Tracker | None:
    """The tracker that started last and is still running."""
    return next((o for o in reversed(_observers) if isinstance(o, Tracker)), None)


# -- allocation sites ---------------------------------------------------------------------------


class Origin(NamedTuple):
    """The allocation site: the op, and the source location in the user's program."""

    op: str
    site: SourceLocation | None

    @property
    def place(self) -> str:
        """``file.py:12, in f: y = x.exp()``; the op, where there is no location."""
        return self.op if self.site is None else _describe(self.site)


def is_ours(frame: FrameType) -> bool:
    """Whether a function of this package is running in the frame."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "evergrad"


def origin(frame: FrameType | None) -> Origin:
    """Walk up the stack: the ops of the engine, and the first frame outside of it."""
    words: list[str] = []
    function = "?"
    namers = _frame_namers()
    while frame is not None:
        code = frame.f_code
        if not is_ours(frame):
            return Origin(" > ".join(reversed(words)) or function, (code, frame.f_lasti))
        namer = namers.get(code)
        if namer is not None:
            name = namer[1](_local(frame, namer[0]))
            if name not in words:  # an op that casts its arguments is bound twice
                words.append(name)
        function = code.co_name
        frame = frame.f_back
    return Origin(" > ".join(reversed(words)) or function, None)


def _local(frame: FrameType, name: str) -> object:
    variables = frame.f_locals
    value = variables[name]
    if isinstance(variables, dict):  # a copy that the frame caches, with references to all locals
        variables.clear()
    return value


# -- live buffers -------------------------------------------------------------------------------


class Allocation:
    """One buffer: its size and type, its allocation site, and its lifetime (in seconds).

    >>> with eg.memory.track() as tracker:
    ...     x = eg.ones(1000)
    >>> 4000 in [allocation.nbytes for allocation in tracker.top(1_000_000)]
    True
    """

    __slots__ = ("_category", "_storage", "born", "died", "nbytes", "origin", "type")

    def __init__(
        self,
        nbytes: int,
        origin: Origin,
        type: str = "",
        born: float = 0.0,
        storage: Storage | None = None,
    ) -> None:
        self.nbytes: int = nbytes
        self.origin: Origin = origin
        self.type: str = type
        self.born: float = born
        self.died: float | None = None
        self._category = OTHER
        # Its category may change while it is live.
        self._storage = None if storage is None else weakref.ref(storage)

    @property
    def op(self) -> str:
        """The op that allocated it."""
        return self.origin.op

    @property
    def site(self) -> str:
        """The source location of the allocation, or an empty string."""
        return "" if self.origin.site is None else self.origin.place

    @property
    def category(self) -> str:
        """What it is for."""
        storage = None if self._storage is None or self.died is not None else self._storage()
        return CATEGORIES[self._category if storage is None else storage.category]

    def end(self, category: int, died: float) -> None:
        """Note that it was released."""
        self._category = category
        self.died = died

    def __repr__(self) -> str:
        return f"<{self.nbytes:,} bytes {self.type} from {self.op} at {self.site}>"


class Census:
    """The live allocations since it was attached."""

    def __init__(self) -> None:
        self.alive: dict[int, Allocation] = {}
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

    def allocated(self, storage: Any) -> None:
        self._enter(storage, origin(sys._getframe(1)))

    def freed(self, storage: Any) -> None:
        self._leave(storage)

    def held(self, nbytes: int) -> None:
        """Pending cotangents are released before a step ends."""

    def used(self, nbytes: int) -> None:
        """So is scratch memory."""

    def _enter(self, storage: Storage, source: Origin) -> Allocation:
        made = Allocation(storage.nbytes, source, str(storage.type), self.seconds(), storage)
        self.alive[id(storage)] = made
        return made

    def _leave(self, storage: Storage) -> Allocation | None:
        gone = self.alive.pop(id(storage), None)
        if gone is not None:
            gone.end(storage.category, self.seconds())
        return gone


# -- the timeline -------------------------------------------------------------------------------


class Event(NamedTuple):
    """One change. ``kind`` is ``alloc`` or ``free`` (a storage), ``hold`` (more or less memory of
    pending cotangents) or ``scratch`` (memory that a vjp used while it ran, released already).
    ``live`` includes that scratch.

    >>> with eg.memory.track() as tracker:
    ...     x = eg.ones(1000)
    >>> ("alloc", 4000) in [(event.kind, event.nbytes) for event in tracker.timeline]
    True
    """

    seconds: float
    kind: str
    nbytes: int
    live: int
    origin: Origin
    allocation: Allocation | None


class Usage(NamedTuple):
    """The memory of one op or line: bytes live at the peak, bytes and buffers allocated in all.

    >>> with eg.memory.track() as tracker:
    ...     x = eg.ones(1000)
    >>> 4000 in [usage.allocated for usage in tracker.by_op().values()]
    True
    """

    at_peak: int
    allocated: int
    buffers: int


class Tracker(Census):
    """Records every allocation and release of all threads inside its ``with`` block.

    >>> with eg.memory.track() as tracker:
    ...     x = eg.ones(1000)
    >>> len(tracker.timeline) > 0, len(tracker.top(3)) > 0
    (True, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self.timeline: list[Event] = []
        self.live_at_start: int = LEDGER.live

    def __enter__(self) -> Tracker:
        self._start = time.perf_counter()
        self.live_at_start = LEDGER.live
        attach(self)
        return self

    def __exit__(self, *exc: object) -> None:
        detach(self)

    def __repr__(self) -> str:
        peak = max((event.live for event in self.timeline), default=self.live_at_start)
        return f"<memory tracker: {len(self.timeline)} events, peak {peak:,} bytes>"

    def _repr_html_(self) -> str:
        return _fragment(self)

    # -- recording --------------------------------------------------------------------------

    def allocated(self, storage: Any) -> None:
        """Note an allocation."""
        live = LEDGER.live
        source = origin(sys._getframe(1))
        made = self._enter(storage, source)
        self.timeline.append(Event(made.born, "alloc", made.nbytes, live, source, made))

    def freed(self, storage: Any) -> None:
        """Note a release."""
        live = LEDGER.live
        gone = self._leave(storage)
        source = _BEFORE if gone is None else gone.origin
        self.timeline.append(Event(self.seconds(), "free", -storage.nbytes, live, source, gone))

    def held(self, nbytes: int) -> None:
        live = LEDGER.live
        source = origin(sys._getframe(1))
        self.timeline.append(Event(self.seconds(), "hold", nbytes, live, source, None))

    def used(self, nbytes: int) -> None:
        live = LEDGER.live + nbytes
        source = origin(sys._getframe(1))
        self.timeline.append(Event(self.seconds(), "scratch", nbytes, live, source, None))

    # -- answers ----------------------------------------------------------------------------

    @property
    def peak(self) -> int:
        """The most bytes that were live at once."""
        return max((event.live for event in list(self.timeline)), default=self.live_at_start)

    def alive_at_peak(self) -> list[Allocation]:
        """All that was live at the peak, largest first; the sizes add up to :attr:`peak`.

        Memory without a storage of this tracker has entries of its own: memory allocated before,
        pending cotangents and scratch of backward.
        """
        events = list(self.timeline)
        top = max(range(len(events)), key=lambda i: events[i].live, default=None)
        alive: dict[Allocation, None] = {}
        before, pending, scratch = self.live_at_start, 0, Allocation(0, _BEFORE)
        for event in [] if top is None else events[: top + 1]:
            if event.kind == "alloc" and event.allocation is not None:
                alive[event.allocation] = None
            elif event.kind == "free" and event.allocation is None:
                before += event.nbytes
            elif event.kind == "free" and event.allocation is not None:
                alive.pop(event.allocation, None)
            elif event.kind == "hold":
                pending += event.nbytes
        if top is not None and events[top].kind == "scratch":
            scratch = Allocation(events[top].nbytes, events[top].origin, "scratch")
        others = [Allocation(before, _BEFORE), Allocation(pending, _PENDING), scratch]
        found = [*alive, *(entry for entry in others if entry.nbytes)]
        return sorted(found, key=lambda entry: -entry.nbytes)

    def top(self, n: int = 10) -> list[Allocation]:
        """The ``n`` largest allocations that were live at the peak."""
        return self.alive_at_peak()[:n]

    def by_op(self) -> dict[str, Usage]:
        """The memory of each op, most at the peak first."""
        return self._usage(lambda source: source.op)

    def by_site(self) -> dict[str, Usage]:
        """The memory of each line of the program, most at the peak first."""
        return self._usage(lambda source: source.place)

    def _usage(self, key: Callable[[Origin], str]) -> dict[str, Usage]:
        named = functools.cache(key)
        at_peak = _bytes_by(named, self.alive_at_peak())
        made = [e.allocation for e in list(self.timeline) if e.kind == "alloc" and e.allocation]
        allocated = _bytes_by(named, made)
        counts: dict[str, int] = {}
        for entry in made:
            counts[named(entry.origin)] = counts.get(named(entry.origin), 0) + 1
        usage = {
            name: Usage(at_peak.get(name, 0), allocated.get(name, 0), counts.get(name, 0))
            for name in {**at_peak, **allocated}
        }
        return dict(sorted(usage.items(), key=lambda item: item[1], reverse=True))

    def report(self, format: str = "text") -> str:
        """The report as ``"text"``, ``"json"`` or a self-contained ``"html"`` page."""
        return _report(format, tracker=self)


_BEFORE = Origin("alive before tracking", None)
_PENDING = Origin("pending cotangents in backward", None)


def _bytes_by(key: Callable[[Origin], str], entries: Iterable[Allocation]) -> dict[str, int]:
    total: dict[str, int] = {}
    for entry in entries:
        name = key(entry.origin)
        total[name] = total.get(name, 0) + entry.nbytes
    return total


def track() -> Tracker:
    """``with memory.track() as tracker: ...``: record every allocation and every release.

    >>> with eg.memory.track() as tracker:
    ...     x = eg.ones(1000)
    >>> tracker.peak >= 4000
    True
    """
    return Tracker()
