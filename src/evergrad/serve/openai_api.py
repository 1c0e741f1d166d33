"""OpenAI's endpoints over a served model."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from evergrad.serve import openai_types as types
from evergrad.serve.engine import QueueFullError
from evergrad.serve.metrics import Metrics
from evergrad.serve.openai_types import Body, Reply, RequestError
from evergrad.serve.sampling import Sampling
from evergrad.serve.service import Piece, Service, Wanted
from evergrad.serve.worker import Answer

if TYPE_CHECKING:
    from evergrad.core.types import JsonObject

T = TypeVar("T")

_COMPLETION_TOKENS = 16  # OpenAI's default
_RETRY_SECONDS = 1
_MOST_EMBEDDING = 8  # requests for embeddings at once: each holds a thread


class OpenAI:
    """Answers requests with a service; :meth:`routes` are to be mounted."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service = service
        self.metrics = metrics
        self._started = int(time.time())
        self._embedding = 0  # requests for embeddings that are running

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/embeddings", self.embed, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
        ]

    # -- endpoints ----------------------------------------------------------------------------

    async def chat(self, request: Request) -> Response:
        body = await _body(request)
        wanted = types.wanted(body, self.service, None, types.chat_likeliest(body))
        shorten = body.take("truncate", bool, default=False)
        try:
            # In a thread, as all that takes long for long texts: others are answered meanwhile.
            chat_prompt = self.service.chat_prompt
            prompt = await run_in_threadpool(chat_prompt, types.messages(body), shorten)
        except ValueError as error:
            raise RequestError(str(error), "messages") from error
        return await self._answer(request, body, "chat.completion", [prompt], wanted)

    async def complete(self, request: Request) -> Response:
        body = await _body(request)
        if body.take("echo", bool, default=False):
            raise RequestError("echo is not supported", "echo")
        likeliest = body.whole("logprobs", 0, 20)
        wanted = types.wanted(body, self.service, _COMPLETION_TOKENS, likeliest)
        prompts = await run_in_threadpool(types.prompts, body, self.service, "prompt")
        return await self._answer(request, body, "text_completion", prompts, wanted)

    async def embed(self, request: Request) -> Response:
        body = await _body(request)
        if "dimensions" in body:
            raise RequestError("dimensions is not supported", "dimensions")
        types.adapter(body, self.service)
        encoding = body.take("encoding_format", str, default="float")
        inputs = await run_in_threadpool(types.prompts, body, self.service, "input")
        if self._embedding >= _MOST_EMBEDDING:
            raise BusyError(f"{self._embedding} requests for embeddings are running")
        self._embedding += 1
        try:
            features = await self._embedded(request, inputs)
        finally:
            self._embedding -= 1
        found = [
            {
                "object": "embedding", "index": index,
                "embedding": _packed(values) if encoding == "base64" else values,
            }
            for index, values in enumerate(features)
        ]  # fmt: skip
        count = sum(map(len, inputs))
        return JSONResponse({
            "object": "list", "data": found, "model": self.service.name,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        })  # fmt: skip

    async def _embedded(self, request: Request, inputs: list[list[int]]) -> list[list[float]]:
        """The features of each input; no more are computed once the client has gone."""
        found = []
        for index, tokens in enumerate(inputs):
            if len(tokens) > self.service.context:
                raise RequestError(f"input {index} has more tokens than the context", "input")
            if await request.is_disconnected():
                raise RequestError("the client has gone", status=499)
            try:
                found.append(await run_in_threadpool(self.service.engine.embed, tuple(tokens)))
            except ValueError as error:
                raise RequestError(str(error), "input") from error
        return found

    async def models(self, request: Request) -> Response:
        data = [self._model(name) for name in self.service.models()]
        return JSONResponse({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.service.models():
            raise RequestError(f"there is no model {name!r}", "model", 404, "model_not_found")
        return JSONResponse(self._model(name))

    def _model(self, name: str) -> dict[str, object]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "evergrad"}

    # -- answers ------------------------------------------------------------------------------

    async def _answer(
        self, request: Request, body: Body, kind: str, prompts: list[list[int]], wanted: Wanted
    ) -> Response:
        count = body.whole("n", 1, 16, default=1)
        options = body.take("stream_options", dict, default={})
        model = body.take("model", str, default=self.service.name)
        run = Run(self, Reply(self.service, kind, model), wanted)
        run.submit([prompt for prompt in prompts for _ in range(count)], count)
        if body.take("stream", bool, default=False):
            with_usage = bool(options.get("include_usage"))
            return EventStream(run, with_usage)
        return JSONResponse(await run.whole(request))


_NO_CACHE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Run:
    """The answers to one request: as many as it wants, streamed or whole."""

    def __init__(self, api: OpenAI, reply: Reply, wanted: Wanted) -> None:
        self.service: Service = api.service
        self.metrics: Metrics = api.metrics
        self.reply = reply
        self.wanted = wanted
        self.prompts: list[list[int]] = []
        self.answers: list[Answer] = []
        self.written: int = 0

    def submit(self, prompts: list[list[int]], count: int) -> None:
        """Enter all of them or none. Further choices of one seed draw from the seeds after it."""
        self.prompts = prompts[::count]
        try:
            for number, prompt in enumerate(prompts):
                self.answers.append(self.service.submit(prompt, self._seeded(number % count)))
        except (ValueError, QueueFullError) as error:
            for answer in self.answers:
                answer.sequence.cancel()
            if isinstance(error, QueueFullError):
                raise BusyError(str(error)) from error
            is_long = "tokens, the model looks at" in str(error)
            code = "context_length_exceeded" if is_long else None
            raise RequestError(str(error), code=code) from error
        self.metrics.prompt_tokens.inc(sum(map(len, self.prompts)))

    def _seeded(self, number: int) -> Wanted:
        seed = self.wanted.sampling.seed
        if seed is None or number == 0:
            return self.wanted
        options = Sampling(**{**self.wanted.sampling.__dict__, "seed": seed + number})
        return Wanted(**{**self.wanted.__dict__, "sampling": options})

    @property
    def with_log(self) -> bool:
        return self.wanted.log_probabilities is not None

    async def pieces(self, number: int) -> AsyncGenerator[Piece, None]:
        """The pieces of one answer; its tokens are counted and timed."""
        clock = self.metrics.clock()
        async with aclosing(self.service.pieces(self.answers[number], self.wanted)) as pieces:
            last = 0
            async for piece in pieces:
                clock.note(piece.written - last)
                last = piece.written
                yield piece
        self.written += last

    def usage(self) -> dict[str, object]:
        reused = sum(answer.sequence.reused for answer in self.answers)
        return types.usage(sum(map(len, self.prompts)), self.written, reused)

    async def whole(self, request: Request) -> JsonObject:
        """All answers, once they are complete; none if the client has gone."""
        choices = []
        watch = asyncio.create_task(self._cancel_once_gone(request))
        try:
            for number in range(len(self.answers)):
                found = [piece async for piece in self.pieces(number)]
                choices.append(self.reply.whole(number, found, self.with_log))
                if found[-1].reason == "cancelled":
                    raise RequestError("the client has gone", status=499)
                if found[-1].reason == "error":
                    raise RequestError("the engine failed", status=500)
        finally:
            watch.cancel()
            self.cancel()
        return {**self.reply.envelope(choices), "usage": self.usage()}

    async def _cancel_once_gone(self, request: Request) -> None:
        """Cancel the answers when the client disconnects, also while they wait in the queue."""
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.cancel()

    async def stream(self, with_usage: bool) -> AsyncGenerator[str, None]:
        """Server-sent events, the answers interleaved as they come."""
        try:
            if self.reply.is_chat:
                begun = {"role": "assistant", "content": ""}
                for number in range(len(self.answers)):
                    first = {"index": number, "delta": begun, "finish_reason": None}
                    yield _event(self.reply.chunk([first]))
            async with aclosing(merged([self._deltas(n) for n in range(len(self.answers))])) as all:
                async for delta in all:
                    yield _event(self.reply.chunk([delta]))
            if with_usage:
                yield _event({**self.reply.chunk([]), "usage": self.usage()})
            yield "data: [DONE]\n\n"
        finally:
            self.cancel()

    async def _deltas(self, number: int) -> AsyncGenerator[dict[str, object], None]:
        offset = 0
        async for piece in self.pieces(number):
            yield self.reply.delta(number, piece, offset, self.with_log)
            offset += len(piece.text)

    def cancel(self) -> None:
        for answer in self.answers:
            answer.sequence.cancel()


class EventStream(StreamingResponse):
    """The answers of a run as server-sent events. A client that is gone before the first event
    never starts the stream, whose end would cancel the answers: they are cancelled here."""

    def __init__(self, run: Run, with_usage: bool) -> None:
        events = run.stream(with_usage)
        super().__init__(events, media_type="text/event-stream", headers=_NO_CACHE)
        self.run = run

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.run.cancel()


class BusyError(RequestError):
    """Too many requests wait already."""

    def __init__(self, message: str) -> None:
        super().__init__(f"the server is busy: {message}", status=429, code="rate_limit_exceeded")
        self.retry = _RETRY_SECONDS


async def merged(sources: list[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """What several sources give, as it comes; an error of one ends all."""
    if len(sources) == 1:
        async for value in sources[0]:
            yield value
        return
    queue: asyncio.Queue[tuple[T, ...] | Exception | None] = asyncio.Queue()

    async def forward(source: AsyncGenerator[T, None]) -> None:
        try:
            async for value in source:
                await queue.put((value,))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    tasks = [asyncio.create_task(forward(source)) for source in sources]
    try:
        left = len(tasks)
        while left:
            found = await queue.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                left -= 1
            else:
                yield found[0]
    finally:
        for task in tasks:
            task.cancel()


async def _body(request: Request) -> Body:
    try:
        return Body(json.loads(await request.body()))
    except ClientDisconnect as error:
        raise RequestError("the client has gone", status=499) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error


def _event(value: dict[str, object]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _packed(values: list[float]) -> str:
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()
