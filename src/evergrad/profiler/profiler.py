"""``profile``: a block of the program under observation, whole or by a schedule of steps."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum

from evergrad.profiler.collect import Collector
from evergrad.profiler.events import Event, EventList, averages, write_chrome_trace


class ProfilerActivity(Enum):
    """What can be watched; only the CPU is there.

    >>> eg.profiler.ProfilerActivity.CPU.name
    'CPU'
    """

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(Enum):
    """What a profiler does in one step.

    >>> step = eg.profiler.schedule(wait=1, warmup=1, active=1)
    >>> step(0).name, step(2).name
    ('NONE', 'RECORD_AND_SAVE')
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """What can be watched here.

    >>> [activity.name for activity in eg.profiler.supported_activities()]
    ['CPU']
    """
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:  # fmt: skip
    """Cycles of steps: ``wait`` idle, ``warmup`` thrown away, ``active`` recorded.

    >>> step = eg.profiler.schedule(wait=1, warmup=1, active=1)
    >>> [step(n).name for n in range(3)]
    ['NONE', 'WARMUP', 'RECORD_AND_SAVE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError("Invalid profiler schedule arguments")
    if warmup == 0:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results",
            UserWarning,
            stacklevel=2,
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle, place = divmod(step, length)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """Writes each finished trace to a file of its own in a folder.

    Args:
        dir_name: the folder
        worker_name: in the name of the files; default host and process
        use_gzip: compress them; default ``False``

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = eg.profiler.tensorboard_trace_handler(folder)
    ...     with eg.profiler.profile(on_trace_ready=done):
    ...         _ = eg.ones(3) + 1
    ...     len(os.listdir(folder))
    1
    """

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json"
        prof.export_chrome_trace(os.path.join(dir_name, name + (".gz" if use_gzip else "")))

    return handler


class profile:  # noqa: N801 - PyTorch's spelling
    """Watch a block: ``with profile() as p: ...; print(p.key_averages().table())``.

    With a ``schedule`` call :meth:`step` after each step; ``on_trace_ready`` is called with the
    profiler at the end of each cycle.

    >>> with eg.profiler.profile() as watched:
    ...     _ = eg.ones(3) + 1
    >>> "add" in watched.key_averages().table()
    True
    """

    def __init__(
        self, *, activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., object] | None = None, record_shapes: bool = False,
        profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
        with_modules: bool = False, experimental_config: object = None,
        execution_trace_observer: object = None, acc_events: bool = False,
        use_cuda: bool | None = None, custom_trace_id_callback: object = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        self.activities: set[ProfilerActivity] = (
            set(activities) if activities is not None else supported_activities()
        )
        self.schedule: Callable[[int], ProfilerAction] = schedule or (
            lambda step: ProfilerAction.RECORD
        )
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.step_num: int = 0
        self._action = ProfilerAction.NONE
        self._collector: Collector | None = None
        self._events: list[Event] = []

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with the first step."""
        self._become(self.schedule(self.step_num))

    def step(self) -> None:
        """One step of the program is over."""
        finished = self._action
        self.step_num += 1
        following = self.schedule(self.step_num)
        if finished is ProfilerAction.RECORD_AND_SAVE:
            self._become(ProfilerAction.NONE)
            self._hand_over()
        self._become(following)

    def stop(self) -> None:
        """End; a trace that is not finished is handed over as it is."""
        was_recording = self._action in _RECORDING
        self._become(ProfilerAction.NONE)
        if was_recording:
            self._hand_over()

    def _become(self, action: ProfilerAction) -> None:
        is_recording, records = self._collector is not None, action in _RECORDING
        if records and not is_recording:
            self._collector = Collector(self.record_shapes)
            self._collector.start()
        elif is_recording and not records:
            assert self._collector is not None
            self._collector.stop()
            self._events = self._collector.events
            self._collector = None
        self._action = action

    def _hand_over(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _seen(self) -> list[Event]:
        return self._events if self._collector is None else self._collector.events

    def events(self) -> EventList:
        """Every call that was seen."""
        return EventList(sorted(self._seen(), key=lambda event: event.start))

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:  # fmt: skip
        """Calls of the same name (and shapes) together."""
        return averages(self._seen(), group_by_input_shape)

    def export_chrome_trace(self, path: str) -> None:
        """Write what was seen to a file that trace viewers show; compressed if it ends in .gz."""
        write_chrome_trace(self._seen(), path)
