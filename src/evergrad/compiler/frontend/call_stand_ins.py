"""What replaces impure functions, iterators and sources of random numbers while a session runs; for
other threads they are what they replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend import impure

if TYPE_CHECKING:
    from evergrad.compiler.frontend.recorded_calls import CallRecorder


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
        recorder.flush_recorders(self.held)
        return recorder.call(self.held.__next__, (), {})

    def __getattr__(self, name: str) -> Any:
        if self.recorder is not None:
            self.recorder.refuse(f"the method {name} of an iterator is used")
        return getattr(self.held, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.recorder is not None:
            self.recorder.refuse("an iterator is copied")
        return self.held.__reduce_ex__(protocol)


def stand_in(value: Any, recorder: CallRecorder) -> Any:
    """The stand-in for an impure function or object."""
    if value is impure.WARN:
        return RecordedWarn(value, recorder)
    kind: Any = RecordedIterator
    if impure.is_function(value):
        kind = RecordedFunction
    elif impure.is_source(value):
        kind = RecordedSource
    return kind(value, recorder)
