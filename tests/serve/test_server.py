"""The server itself: who may ask, limits, back-pressure, metrics, clients that go, stopping."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from evergrad.memory.ledger import LEDGER

from .running import Running, running, small_service

# After the extra's modules were found.
from evergrad.serve.app import make_app  # isort: skip
from evergrad.serve.guard import Limits  # isort: skip
from evergrad.serve.server import TimedProtocol  # isort: skip

BODY = {"prompt": "abc", "max_tokens": 5, "seed": 1}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(small_service(), page=True) as found:
        yield found


def ask(
    where: Running, method: str = "POST", path: str = "/v1/completions", body: Any = None,
    **headers: str,
) -> tuple[int, Any, dict[str, str]]:  # fmt: skip
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", int(where.url.rpartition(":")[2]), 30)
    try:
        sent = body if isinstance(body, bytes) else json.dumps(BODY if body is None else body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, sent if method == "POST" else None, given)
        answer = connection.getresponse()
        content = answer.read()
        kind = answer.headers.get("content-type", "")
        found = json.loads(content) if kind.startswith("application/json") else content
        return answer.status, found, {k.lower(): v for k, v in answer.headers.items()}
    finally:
        connection.close()


def settle(where: Running) -> None:
    """Wait until the engine has ended its last step: clients are answered a moment before."""
    end = time.monotonic() + 10
    while not where.service.engine.is_idle:
        assert time.monotonic() < end, "requests are left"
        time.sleep(0.01)
    time.sleep(0.02)


# -- limits ---------------------------------------------------------------------------------------


def test_large_bodies_are_refused(server: Running) -> None:
    assert ask(server, body=b"x" * ((1 << 20) + 1))[0] == 413

    def chunks() -> Iterator[bytes]:  # a length that is not told before
        for _ in range(20):
            yield b"y" * (1 << 16)

    connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), 30)
    try:
        connection.request("POST", "/v1/completions", chunks(), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})  # fmt: skip
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server did not read on
    finally:
        connection.close()
    assert ask(server)[0] == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000])
def test_bodies_that_are_no_objects_are_told(server: Running, body: bytes) -> None:
    status, found, _ = ask(server, body=body)
    assert status == 400 and found["error"]["type"] == "invalid_request_error"


def raw(where: Running, *parts: bytes, wait: float = 0.0) -> bytes:
    """What comes back for bytes that are sent in parts, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", int(where.url.rpartition(":")[2])), 30) as sent:
        for part in parts:
            sent.sendall(part)
            time.sleep(wait)
        found = b""
        try:
            while part := sent.recv(1 << 16):
                found += part
        except ConnectionResetError:
            pass
        return found


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "parts", [
        (HEAD + b"Content-Length: 50\r\n\r\n", b'{"prompt'),
        (HEAD + b"Content-Length: 50\r\n\r\n",),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n"),
    ],
)  # fmt: skip
def test_a_body_has_to_come_in_time(parts: Any) -> None:
    with running(small_service(context=48, sequences=1), body_seconds=0.3) as where:
        found = raw(where, *parts)
        assert found.startswith(b"HTTP/1.1 408 ") and b"did not come" in found
        assert ask(where)[0] == 200


@pytest.mark.parametrize("parts", [
    (), (b"POST /v1",), (HEAD,), (HEAD, b"X-A: b\r\n") * 3,
    (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /heal", b"t"),
])  # fmt: skip
def test_a_head_has_to_come_in_time(monkeypatch: pytest.MonkeyPatch, parts: Any) -> None:
    """Also where bytes come now and then, and after a request that was answered."""
    monkeypatch.setattr(TimedProtocol, "seconds", 0.5)
    with running(small_service(context=48, sequences=1)) as where:
        begun = time.monotonic()
        raw(where, *parts, wait=0.1)
        assert time.monotonic() - begun < 10
        service = where.service
        step = service.engine.step  # an answer may take longer than the head of its request
        service.engine.step = lambda: (time.sleep(0.2), step())[1]  # type: ignore[method-assign]
        assert ask(where)[0] == 200


@pytest.mark.parametrize("head", [
    b"Content-Length: -1", b"Content-Length: 1e3", b"Content-Length: " + b"9" * 5000,
    b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: gzip", b"X: " + b"y" * 200_000,
    b"Host: evil.example", b"Origin: http://[", b"Origin: http://[::1", b"Origin: ",
    b"Origin: null", b"Origin: http://localhost@evil.example", b"Origin: http://evil.example/localhost",
    b"Content-Length: \xb2", b"Authorization: \xff\xfe",
])  # fmt: skip
def test_hostile_heads_are_refused(server: Running, head: bytes) -> None:
    found = raw(server, HEAD + head + b"\r\nConnection: close\r\n\r\n")
    assert found == b"" or 400 <= int(found.split()[1]) < 500, found[:200]
    assert ask(server)[0] == 200


@pytest.mark.parametrize(
    "part",
    [
        b"Content-Length: 100\r\n\r\n", b"Content-Length: 100\r\n\r\n{\"prompt\":",
        b"Transfer-Encoding: chunked\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\nzz\r\n",
        b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
    ],
)  # fmt: skip
def test_a_client_that_goes_while_its_body_comes_is_no_error_of_the_server(
    server: Running, part: bytes
) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings"):
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + part)
            time.sleep(0.02)
    time.sleep(0.1)
    assert b'status="500"' not in ask(server, "GET", "/metrics")[1]


def test_a_client_that_is_gone_before_the_first_event_is_not_answered() -> None:
    """The application alone: the disconnection is there when the answer begins."""
    service = small_service(context=160, sequences=1)
    app = make_app(service, Limits())
    body = json.dumps({"prompt": "a", "max_tokens": 150, "stream": True, "seed": 0}).encode()
    messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"",
        "headers": [(b"host", b"localhost")], "http_version": "1.1", "client": ("127.0.0.1", 1),
    }  # fmt: skip

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pass

    submitted = []
    submit = service.worker.submit
    service.worker.submit = lambda r: submitted.append(submit(r)) or submitted[-1]  # type: ignore
    asyncio.run(app(scope, receive, send))
    assert submitted and all(answer.sequence.is_cancelled for answer in submitted)


def test_embeddings_of_clients_that_are_gone_are_not_computed(server: Running) -> None:
    computed, wait = [], threading.Event()
    embed = server.service.engine.embed

    def slow(tokens: tuple[int, ...]) -> list[float]:
        computed.append(tokens)
        wait.wait(0.05)
        return embed(tokens)

    server.service.engine.embed = slow  # type: ignore[method-assign]
    try:
        connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), 30)
        connection.request("POST", "/v1/embeddings", json.dumps({"input": ["a"] * 500}))
        while not computed:
            time.sleep(0.01)
        connection.close()
        time.sleep(1.0)
        count = len(computed)
        time.sleep(0.5)
        assert len(computed) == count < 500
    finally:
        server.service.engine.embed = embed  # type: ignore[method-assign]
    assert ask(server, path="/v1/embeddings", body={"input": "a"})[0] == 200


def test_too_many_embeddings_at_once_are_refused(server: Running) -> None:
    go = threading.Event()
    embed = server.service.engine.embed

    def held(tokens: tuple[int, ...]) -> list[float]:
        go.wait(30)
        return embed(tokens)

    server.service.engine.embed = held  # type: ignore[method-assign]
    try:
        with ThreadPoolExecutor(12) as pool:
            body = {"input": "a"}
            sent = [pool.submit(ask, server, path="/v1/embeddings", body=body) for _ in range(12)]
            end = time.monotonic() + 20
            while sum(one.done() for one in sent) < 4 and time.monotonic() < end:
                time.sleep(0.01)
            go.set()
            found = [one.result() for one in sent]
    finally:
        server.service.engine.embed = embed  # type: ignore[method-assign]
    assert sorted(status for status, *_ in found) == [200] * 8 + [429] * 4
    assert all(one[2]["retry-after"] == "1" for one in found if one[0] == 429)


def test_made_up_paths_are_counted_together(server: Running) -> None:
    """Each name that is counted stays in memory and in what /metrics gives."""
    before = len(ask(server, "GET", "/metrics")[1].splitlines())
    for number in range(20):
        for path in (f"/v1/{number}", f"/v1/models/{number}", f"/{number}", f"/v1/%0A{number}"):
            assert ask(server, "GET", path)[0] == 404
    assert len(ask(server, "GET", "/metrics")[1].splitlines()) <= before + 2


def test_unknown_paths_and_methods(server: Running) -> None:
    assert ask(server, "GET", "/v1/nothing")[0] == 404
    assert ask(server, "GET", "/v1/completions")[0] == 405


def test_an_address_that_asks_too_often_is_refused() -> None:
    with running(small_service(context=48, sequences=1), rate=0.001, burst=3) as where:
        statuses = [ask(where, "GET", "/healthz") for _ in range(5)]
        assert [status for status, *_ in statuses] == [200, 200, 200, 429, 429]
        assert statuses[-1][2]["retry-after"] == "1"


def test_a_full_queue_is_told_and_empties() -> None:
    service = small_service(sequences=1, waiting=1)
    body = {"prompt": "a", "max_tokens": 150, "seed": 0, "temperature": 0}
    step = service.engine.step
    service.engine.step = lambda: (time.sleep(0.005), step())[1]  # type: ignore[method-assign]
    with running(service) as where, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(where, body=body), range(8)))
        statuses = [status for status, *_ in found]
        assert statuses.count(200) >= 2 and statuses.count(429) >= 1
        refused = next(one for one in found if one[0] == 429)
        assert refused[2]["retry-after"] == "1" and "busy" in refused[1]["error"]["message"]
        texts = {one[1]["choices"][0]["text"] for one in found if one[0] == 200}
        assert len(texts) == 1
        assert ask(where)[0] == 200


# -- clients and the end --------------------------------------------------------------------------


def test_metrics_and_health(server: Running) -> None:
    ask(server)
    settle(server)
    status, text, headers = ask(server, "GET", "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = dict(
        line.rsplit(" ", 1) for line in text.decode().splitlines() if not line.startswith("#")
    )
    assert float(lines["evergrad_tokens_total"]) >= 5
    assert float(lines["evergrad_running"]) == 0
    assert float(lines['evergrad_requests_total{path="/v1/completions",status="200"}']) >= 1
    assert float(lines["evergrad_memory_bytes"]) > 0
    assert any(name.startswith("evergrad_time_between_tokens_seconds_bucket") for name in lines)
    assert ask(server, "GET", "/healthz")[1]["status"] == "ok"


def open_stream(where: Running, **options: Any) -> tuple[Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", int(where.url.rpartition(":")[2]), 30)
    body = {"prompt": "a", "max_tokens": 150, "stream": True, "seed": 0, **options}
    connection.request("POST", "/v1/completions", json.dumps(body))
    return connection, connection.getresponse()


def test_a_client_that_goes_frees_its_place(server: Running) -> None:
    connection, answer = open_stream(server)
    assert answer.readline().startswith(b"data: ")
    connection.sock.close()
    answer.close()
    connection.close()
    settle(server)
    table = server.service.engine.table
    assert table.used == 0 and table.reserved == 0


def test_waiting_clients_that_go_take_no_room_of_others() -> None:
    """Whole answers too: nothing is written of them that would show that nobody reads."""
    service = small_service(sequences=1, waiting=4)
    step = service.engine.step
    service.engine.step = lambda: (time.sleep(0.01), step())[1]  # type: ignore[method-assign]
    with running(service) as where:
        first, answer = open_stream(where, temperature=0, logit_bias={"47": -100, "50": -100})
        assert answer.readline()
        gone = [http.client.HTTPConnection(first.host, first.port, 30) for _ in range(4)]
        for one in gone:
            one.request("POST", "/v1/completions", json.dumps({**BODY, "max_tokens": 100}))
        end = time.monotonic() + 10
        while service.engine.load[1] < 4 and time.monotonic() < end:
            time.sleep(0.01)
        assert ask(where)[0] == 429
        for one in gone:
            one.close()
        while service.engine.load[1] and time.monotonic() < end:
            time.sleep(0.01)
        assert service.engine.load == (1, 0)
        assert ask(where)[0] == 200
        answer.close()
        first.close()
        settle(where)


def test_an_answer_of_nobody_is_not_written_on() -> None:
    service = small_service(sequences=1)
    step = service.engine.step
    service.engine.step = lambda: (time.sleep(0.01), step())[1]  # type: ignore[method-assign]
    with running(service) as where:
        connection = http.client.HTTPConnection("127.0.0.1", int(where.url.rpartition(":")[2]), 30)
        options = {"max_tokens": 150, "logit_bias": {"47": -100, "50": -100}}
        connection.request("POST", "/v1/completions", json.dumps({**BODY, **options}))
        while service.engine.written < 3:
            time.sleep(0.001)
        connection.close()
        settle(where)
        assert service.engine.written < 100


def test_a_stopping_server_lets_streams_end() -> None:
    service = small_service()
    step = service.engine.step
    service.engine.step = lambda: (time.sleep(0.003), step())[1]  # type: ignore[method-assign]
    with running(service) as where:
        connection, answer = open_stream(where, temperature=0, logit_bias={"47": -100, "50": -100})
        assert answer.readline()
        where.server.should_exit = True
        text = answer.read().decode()
        connection.close()
        assert text.rstrip().endswith("data: [DONE]")
        assert text.count('"finish_reason":null') > 100
    assert not service.worker.is_alive


def texts(stream: bytes) -> list[tuple[Any, ...]]:
    """The pieces of a stream without the names that differ from answer to answer."""
    lines = [line for line in stream.decode().splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line[6:])["choices"]]
    return [(one["index"], one["text"], one["finish_reason"]) for one in choices]


def test_many_clients_are_answered_as_alone(server: Running) -> None:
    """Short here, two minutes in tests/soak: none dropped, no cross-talk, memory flat."""
    bodies = [
        {"prompt": "abc"[: 1 + i % 3] * (1 + i), "max_tokens": 20 + i, "seed": i, "stream": True}
        for i in range(12)
    ]
    alone = [ask(server, body=body)[1] for body in bodies]
    settle(server)
    live = LEDGER.live

    def client(i: int) -> bool:
        return texts(ask(server, body=bodies[i % 12])[1]) == texts(alone[i % 12])

    with ThreadPoolExecutor(25) as pool:
        assert all(pool.map(client, range(50)))
    settle(server)
    assert LEDGER.live == live
    assert threading.active_count() < 40
