"""The engine in a thread of its own, and its events in the event loop of a server."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator

from evergrad.serve.engine import Engine
from evergrad.serve.sequence import Event, Finished, Request, Sequence

_LOG = logging.getLogger(__name__)


class Worker:
    """Runs an engine while there is something to do; sleeps otherwise."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="evergrad engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End after the step in progress; requests that are left end with an error."""
        self._is_stopping = True
        self._wake.set()
        self._thread.join()
        self.engine.fail()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_stopping:
            if self.engine.is_idle:
                self._wake.wait()
                self._wake.clear()
                continue
            try:
                self.engine.step()
            except Exception:  # whatever it was, others are to be answered
                _LOG.exception("a step of the engine failed; its requests are ended")
                self.engine.fail()

    def submit(self, request: Request) -> Answer:
        """Enter a request; to be called in the event loop that reads the answer."""
        answer = Answer(asyncio.get_running_loop())
        answer.sequence = self.engine.submit(request, answer.put)
        self._wake.set()
        return answer


class Answer:
    """The events of one request, to be read in an event loop."""

    sequence: Sequence

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        """Called by the engine's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Tokens, then how it ended. Leaving early cancels the request."""
        try:
            while True:
                event = await self._queue.get()
                yield event
                if isinstance(event, Finished):
                    return
        finally:
            self.sequence.cancel()
