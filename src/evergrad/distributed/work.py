"""Handles of communication in progress: ``Work`` and its ``Future``, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from evergrad.distributed.progress import Engine, Task

if TYPE_CHECKING:
    from evergrad.core.types import Leaves


def seconds(timeout: Any, default: float) -> float:
    """A timeout in seconds, given as a ``timedelta``, a number or nothing."""
    if timeout is None:
        return default
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)


class Work:
    """The handle of an operation that runs in the background. Without a task it is complete.

    >>> eg.distributed.init_process_group("gloo", world_size=1, rank=0)
    >>> work = eg.distributed.all_reduce(eg.ones(2), async_op=True)
    >>> work.wait()
    True
    >>> eg.distributed.destroy_process_group()
    """

    def __init__(
        self, engine: Engine | None = None, task: Task | None = None, value: object = None
    ) -> None:
        self._engine = engine
        self._task = task
        self._value = value

    def wait(self, timeout: object = None) -> bool:
        """Return when the operation is complete; raises if it failed."""
        if self._task is not None:
            assert self._engine is not None
            limit = None if timeout is None else seconds(timeout, 0.0)
            self._engine.wait(self._task, limit)
        return True

    def is_completed(self) -> bool:
        """Whether it is done."""
        if self._task is None:
            return True
        assert self._engine is not None
        if not self._task.is_done:
            with self._engine.lock:
                self._engine.progress()
        return self._task.is_done

    def is_success(self) -> bool:
        """Whether it is done without an error."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error, if there was one."""
        return None if self._task is None else self._task.error

    def result(self) -> Leaves:
        """The tensors that were written."""
        self.wait()
        value = self._value
        return list(value) if isinstance(value, list | tuple) else [value]

    def source_rank(self) -> int:
        """The rank that a receive without a source got its message from."""
        self.wait()
        return -1 if self._task is None or self._task.result is None else int(self._task.result)

    def get_future(self) -> Future:
        """A future of the tensors that are written."""
        return Future(self.result)


class Future:
    """A value that is set once, or computed by the first wait for it."""

    __class_getitem__: object = classmethod(GenericAlias)  # Future[Tensor], in annotations

    def __init__(
        self, compute: Callable[[], object] | None = None, *, devices: object = None
    ) -> None:
        self._compute = compute
        self._value: object = None
        self._error: BaseException | None = None
        self._done = False
        self._callbacks: list[Callable[[Future], None]] = []

    def wait(self) -> Any:
        if not self._done:
            if self._compute is None:
                raise RuntimeError("the future has no value yet: call set_result first")
            self.set_result(self._compute())
        if self._error is not None:
            raise self._error
        return self._value

    value = wait

    def set_result(self, value: object) -> None:
        self._value = value
        self._finish()

    def set_exception(self, result: BaseException) -> None:
        self._error = result
        self._finish()

    def _finish(self) -> None:
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def done(self) -> bool:
        return self._done

    def add_done_callback(self, callback: Callable[[Future], None]) -> None:
        """Call the function with this future once it has a value."""
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def then(self, function: Callable[[Future], object]) -> Future:
        """A future of what ``function`` makes of this one."""

        def compute() -> object:
            self.wait()
            return function(self)

        return Future(compute)
