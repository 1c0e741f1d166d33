"""Servers for tests: a small model behind a real socket, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from evergrad.models.gpt import GPT
from evergrad.serve.engine import EngineConfig
from evergrad.serve.service import Service
from evergrad.tokenizers import CharTokenizer, ChatTokenizer

from .models import made

for name in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'evergrad[app]'")

ALPHABET = "abcdefghijklmnopqrstuvwxyz ABCHIT.,!?<>&\"'/=()\n"


class Running(NamedTuple):
    url: str
    service: Service
    server: Any


def small_service(**options: Any) -> Service:
    tokenizer = ChatTokenizer(CharTokenizer(ALPHABET))
    model: GPT = made(vocabulary=len(tokenizer), context=options.pop("context", 160))
    config = EngineConfig(sequences=options.pop("sequences", 8), waiting=options.pop("waiting", 64))
    return Service(model, tokenizer, "small", config, **options)


@contextmanager
def running(service: Service, *, page: bool = False, **limits: Any) -> Iterator[Running]:
    """The service at a free port of the loopback, until the end of the block."""
    import uvicorn

    from evergrad.serve.app import make_app
    from evergrad.serve.guard import Limits
    from evergrad.serve.server import TimedProtocol, listen

    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        make_app(service, Limits(**{"rate": 1e6, "burst": 10**6, **limits}), page=page),
        log_level="error", lifespan="on", timeout_graceful_shutdown=20, http=TimedProtocol,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.02)
        yield Running(f"http://127.0.0.1:{listening.getsockname()[1]}", service, server)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
    assert not thread.is_alive()
