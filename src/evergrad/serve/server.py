"""Runs an application: where it listens, what it prints, and how it stops."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from evergrad.models.model import require
from evergrad.serve.guard import App, Limits

HEADER_SECONDS = 30.0  # in which a connection has to send the head of a request
GRACE_SECONDS = 30  # for running streams to end after a stop is requested


def limits_for(host: str, token: str | None) -> Limits:
    """Loopback needs no token; where others can connect there is always one."""
    is_loopback = host == "localhost" or _is_loopback(host)
    if token is None and not is_loopback:
        token = secrets.token_urlsafe(24)
    require(
        token is None or len(token) >= 16 or is_loopback,
        "the token is short enough to be guessed",
        "choose one of at least 16 characters, or leave --token out to have one made",
    )
    return Limits("127.0.0.1" if is_loopback else host, token)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 for any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    return found


def run(app: App, listening: socket.socket, ready: Callable[[], None] | None = None) -> None:
    """Serve until a signal: then no more connections are accepted, and running streams end."""
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=GRACE_SECONDS, http=TimedProtocol,
    )  # fmt: skip
    server = _Server(config, ready)
    server.run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started and self._ready is not None:
            self._ready()


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes connections on which the head of a request does not come in time."""

    seconds: float = HEADER_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """Start the clock while no request is being answered; it is not set back by more bytes."""
        if self._is_answering:
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._expire)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if not self._is_answering and not self.transport.is_closing():
            self.transport.close()
