"""Results that arrive later, on Python's own futures."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Future(Generic[T]):
    """A value that is set once and waited for."""

    def __init__(self, *, devices: Any = None) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        return self._future.done()

    def wait(self) -> T:
        return self._future.result()

    def value(self) -> T:
        if not self.done():
            raise RuntimeError("the future has no value yet; call wait()")
        return self._future.result()

    def set_result(self, result: T) -> None:
        self._future.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        self._future.set_exception(result)

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """A future of what the callback returns, called with this one once it is done."""
        following: Future[Any] = Future()

        def run(_: Any) -> None:
            try:
                following.set_result(callback(self))
            except Exception as error:
                following.set_exception(error)

        self._future.add_done_callback(run)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        self._future.add_done_callback(lambda _: callback(self))


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of all of them, done when the last one is."""
    for future in futures:
        concurrent.futures.wait([future._future])
    made: Future[list[Future[Any]]] = Future()
    made.set_result(futures)
    return made


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """Wait for each, in order."""
    return [future.wait() for future in futures]


__all__ = ["Future", "collect_all", "wait_all"]
