"""What replaces impure functions, iterators and sources of random numbers while a session runs; for
other threads they are what they replace."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.recording import impure

if TYPE_CHECKING:
    from evergrad.compiler.frontend.recording.recorded_calls import CallRecorder


class RecordedFunction(impure.StandIn):
    """Replaces an impure function while a session runs; for other threads it is that function."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self.recorder
        if recorder is None or not recorder.is_recording():
            return self.held(*args, **kwargs)
        if self.held is impure.PRINT:
            return recorder.output(args, kwargs)
        return recorder.call(self.held, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.held, name)

    def __reduce__(self) -> Any:
        return self.held.__reduce__()


class RecordedWarn(RecordedFunction):
    """Replaces ``warnings.warn``."""

    __slots__ = ()

    def __call__(
        self, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None,
        **others: Any,
    ) -> Any:  # fmt: skip
        recorder = self.recorder
        if recorder is None or not recorder.is_recording():
            return self.held(message, category, stacklevel + 1, source, **others)
        return recorder.warn(message, category, stacklevel, source, **others)


class RecordedSource(impure.StandIn):
    """Replaces a source of random numbers."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.held)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.held, name)
        recorder = self.recorder
        if recorder is None or not impure.is_method(name):
            return found
        return RecordedFunction(found, recorder)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.held.__reduce_ex__(protocol)


class RecordedIterator(impure.StandIn):
    """Replaces an iterator."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.held)

    def __iter__(self) -> RecordedIterator:
        return self

    def __next__(self) -> Any:
        recorder = self.recorder
        if recorder is None or not recorder.is_recording():
            return next(self.held)
        return recorder.resume(self.held, self.held.__next__)

    def send(self, value: Any) -> object:
        recorder = self.recorder
        if recorder is None or not recorder.is_recording():
            return self.held.send(value)
        return recorder.resume(self.held, self.held.send, value)

    def __getattr__(self, name: str) -> Any:
        if self.recorder is not None:
            self.recorder.refuse(f"the method {name} of an iterator is used")
        return getattr(self.held, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.recorder is not None:
            self.recorder.refuse("an iterator is copied")
        return self.held.__reduce_ex__(protocol)


class RecordedStream(impure.StandIn):
    """Replaces a stream that texts are written to."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.held)

    def write(self, text: Any) -> Any:
        recorder = self.recorder
        if recorder is None or not recorder.is_recording():
            return self.held.write(text)
        return recorder.write(self.held, text)

    def flush(self) -> None:
        recorder = self.recorder
        if recorder is None or not recorder.is_recording():
            self.held.flush()
        else:
            held = self.held
            recorder.put_out(held.flush, (), {}, lambda: impure.is_writable_stream(held))

    def __getattr__(self, name: str) -> Any:
        if self.recorder is not None:
            self.recorder.refuse_use(f"the attribute {name} of a stream is used")
        return getattr(self.held, name)

    def __enter__(self) -> Any:
        return self.__getattr__("__enter__")()

    def __exit__(self, *error: object) -> object:
        return self.__getattr__("__exit__")(*error)

    def __iter__(self) -> Any:
        return self.__getattr__("__iter__")()

    def __next__(self) -> Any:
        return self.__getattr__("__next__")()


class RecordedLogger(impure.StandIn):
    """Replaces a logger."""

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.held)

    def __getattr__(self, name: str) -> Any:
        recorder = self.recorder
        level = LEVELS.get(name)
        if recorder is None or not recorder.is_recording():
            return getattr(self.held, name)
        if level is not None:
            return functools.partial(recorder.log_record, self.held, level)
        if name == "log":
            return functools.partial(recorder.log_record, self.held)
        if name == "isEnabledFor":
            return functools.partial(_is_enabled, recorder, self.held)
        recorder.refuse_use(f"the attribute {name} of a logger is used")
        return getattr(self.held, name)


LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR, "critical": logging.CRITICAL,
}  # fmt: skip


def _is_enabled(recorder: CallRecorder, logger: Any, level: object) -> object:
    return recorder.call(logger.isEnabledFor, (level,), {})


def stand_in(value: Any, recorder: CallRecorder) -> object:
    """The stand-in for an impure function or object."""
    if value is impure.WARN:
        return RecordedWarn(value, recorder)
    kind: Any = RecordedIterator
    if impure.is_function(value):
        kind = RecordedFunction
    elif impure.is_source(value):
        kind = RecordedSource
    elif impure.is_stream(value):
        kind = RecordedStream
    elif impure.is_logger(value):
        kind = RecordedLogger
    return kind(value, recorder)
