"""What every request passes first: its host, origin, token, rate and size; and safe headers.

A server on the loopback answers only requests addressed to a name of the loopback (a page elsewhere
could otherwise reach it under a name of its own) and, if a browser says where a request comes from,
only those of its own pages. A server that others can reach demands a token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse

from evergrad.serve.metrics import Metrics

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# What is shown without a token: the page itself has none, and whether the server is alive.
OPEN = frozenset({"/", "/chat.css", "/chats.js", "/markdown.js", "/chat.js", "/healthz"})
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::\d*)?", re.ASCII)
_CLIENTS = 4096  # addresses whose rate is remembered
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Limits:
    """Who may ask, how often and how much."""

    host: str = "127.0.0.1"
    token: str | None = None
    body: int = 1 << 20  # bytes
    body_seconds: float = 30.0  # in which a body has to come
    rate: float = 50.0  # requests in a second of one address, in the long run
    burst: int = 200

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK


class RefusedError(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, message: str, retry: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry = retry


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: App, limits: Limits, metrics: Metrics, paths: Iterable[str] = ()
    ) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.paths = frozenset(paths)  # that are counted by name: clients may make up any others
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in _HEADERS.items():
                    headers[name] = value
                known = path if path in self.paths else "other"
                self.metrics.requests.labels(known, message["status"]).inc()
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            self._check_origin(headers)
            self._check_rate((scope.get("client") or ("",))[0])  # guesses of the token count too
            self._check_token(path, headers)
            limited = _limited(headers, receive, self.limits)
        except RefusedError as error:
            await refusal(error)(scope, receive, send_safely)
            return
        await self.app(scope, limited, send_safely)

    def _check_host(self, headers: Headers) -> None:
        name = _host_name(headers.get("host", ""))
        if self.limits.is_loopback:
            if name not in LOOPBACK:
                raise RefusedError(421, f"this server does not answer for the host {name!r}")
        elif name not in (self.limits.host.lower(), *LOOPBACK) and not _is_address(name):
            raise RefusedError(421, f"this server does not answer for the host {name!r}")

    def _check_origin(self, headers: Headers) -> None:
        """A page of another origin may not ask, whatever it asks for."""
        origin = headers.get("origin")
        if origin is not None and _origin_host(origin) != headers.get("host"):
            raise RefusedError(403, f"pages of {origin!r} may not use this server")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise RefusedError(403, "pages of other sites may not use this server")

    def _check_token(self, path: str, headers: Headers) -> None:
        if self.limits.token is None or path in OPEN:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given if scheme.lower() == "bearer" else ""
        if not hmac.compare_digest(given.encode("latin-1"), self.limits.token.encode()):
            raise RefusedError(401, "this server needs its token: Authorization: Bearer TOKEN")

    def _check_rate(self, address: str) -> None:
        """A bucket for each address: ``burst`` requests at once, ``rate`` in a second after."""
        now = time.monotonic()
        left, then = self._rates.pop(address, (float(self.limits.burst), now))
        left = min(self.limits.burst, left + (now - then) * self.limits.rate)
        self._rates[address] = (max(0.0, left - 1), now)
        while len(self._rates) > _CLIENTS:
            self._rates.popitem(last=False)
        if left < 1:
            raise RefusedError(429, "too many requests", retry=1)


def _limited(headers: Headers, receive: Receive, limits: Limits) -> Receive:
    """Receives a body up to so many bytes, whether its length is declared or not, in time."""
    told, most = headers.get("content-length", "0"), limits.body
    if not told.isdecimal() or int(told) > most:
        raise RefusedError(413, f"a body may have {most} bytes")
    count = 0
    is_whole = False
    deadline = asyncio.get_running_loop().time() + limits.body_seconds

    async def limited() -> Message:
        nonlocal count, is_whole
        if is_whole:  # what comes now is that the client has gone
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError as error:
            seconds = limits.body_seconds
            raise RefusedError(408, f"the body did not come in {seconds:g} seconds") from error
        is_whole = not message.get("more_body", False)
        count += len(message.get("body", b""))
        if count > most:
            raise RefusedError(413, f"a body may have {most} bytes")
        return message

    return limited


def refusal(error: RefusedError) -> JSONResponse:
    """The answer to a request that goes no further, in the form of OpenAI's errors."""
    kind = "rate_limit_exceeded" if error.status == 429 else "invalid_request_error"
    body = {"error": {"message": str(error), "type": kind, "param": None, "code": None}}
    retry = {} if error.retry is None else {"Retry-After": str(error.retry)}
    return JSONResponse(body, error.status, headers=retry)


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets; none if there is anything else."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def _origin_host(origin: str) -> str | None:
    """Host and port of an origin; ``None`` if it is none, which equals no host."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
