"""Ctrl-C and SIGTERM as a wish that is fulfilled between two steps."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from evergrad.train.exit_codes import ExitCode

_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
_NOTICE = b"\nfinishing this step, then saving; Ctrl-C again to end at once\n"


class Interrupts:
    """Remembers a signal while it is in use; the second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.received: ExitCode | None = None
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # others cannot take signals
            self._former = {number: signal.signal(number, self._remember) for number in _CODES}
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received is not None:
            raise KeyboardInterrupt
        self.received = _CODES[signal.Signals(number)]
        os.write(2, _NOTICE)  # print() may be interrupted in its own middle
