"""The whole application: OpenAI's endpoints, health, metrics, and the chat's page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from evergrad.html import PALETTE
from evergrad.serve.guard import App, Guard, Limits, RefusedError, refusal
from evergrad.serve.metrics import Metrics
from evergrad.serve.openai_api import BusyError, OpenAI
from evergrad.serve.openai_types import RequestError
from evergrad.serve.service import Service

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/chat.css": ("chat.css", "text/css; charset=utf-8"),
    **{
        f"/{name}": (name, "text/javascript; charset=utf-8")
        for name in ("chats.js", "markdown.js", "chat.js")
    },
}


def make_app(service: Service, limits: Limits | None = None, *, page: bool = False) -> App:
    """An ASGI application that starts and stops the service with itself."""
    metrics = Metrics(service.engine)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(service.start)
        yield
        await run_in_threadpool(service.stop)

    async def healthz(request: Request) -> Response:
        running, waiting = service.engine.load
        body = {"status": "ok", "model": service.name, "running": running, "waiting": waiting}
        if service.worker.is_alive:
            return JSONResponse(body)
        return JSONResponse({**body, "status": "stopped"}, 503)

    async def show_metrics(request: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    routes = [
        *OpenAI(service, metrics).routes(),
        Route("/healthz", healthz),
        Route("/metrics", show_metrics),
        *(_page_routes() if page else ()),
    ]
    handlers: dict[object, Any] = {
        RequestError: _tell_error,
        RefusedError: _tell_refusal,
        HTTPException: _tell_http_error,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    return Guard(app, limits or Limits(), metrics, (route.path for route in routes))


def _page_routes() -> list[Route]:
    folder = files("evergrad.serve") / "web"

    def route(path: str, name: str, kind: str) -> Route:
        content = (folder / name).read_bytes()
        if name.endswith(".css"):
            content = PALETTE.encode() + content

        async def show(request: Request) -> Response:
            return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

        return Route(path, show)

    return [route(path, *about) for path, about in PAGE.items()]


async def _tell_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    headers = {"Retry-After": str(error.retry)} if isinstance(error, BusyError) else {}
    return JSONResponse(error.body, error.status, headers=headers)


async def _tell_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return refusal(error)


async def _tell_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(RequestError(message, status=error.status_code).body, error.status_code)
