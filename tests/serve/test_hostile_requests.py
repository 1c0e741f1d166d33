"""Requests as no client should send them: each is answered or refused, and none is a server error.

Every option of the API with values of every kind; prompts that are too long, empty or no text;
clients that go at once.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from evergrad.memory.ledger import LEDGER

from .running import Running, running, small_service

HUGE = 10**400  # no float holds it
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**64), HUGE, 0.5, -0.5, 5e-324, 1e308,
    float("inf"), float("nan"),
    "", "a", "\ud800", "\x00", "é€😀", "a" * 5000, [], [0], [-1], [HUGE], ["a"],
    [""], [["a"]], [[]], [None], [True], [0.5], {}, {"a": 1}, {"0": HUGE}, {"0": float("nan")},
    {"0": float("inf")}, {"1" * 400: 1}, {"type": "text"}, {"role": "user", "content": "a"},
    [{"role": "user", "content": "a"}], [{"role": "user"}], [{"role": {}, "content": []}],
    [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}],
    [{"role": "\ud800", "content": "a"}], [{"role": ["user"], "content": "a"}],
]  # fmt: skip
SAMPLING = [
    "model", "max_tokens", "max_completion_tokens", "temperature", "top_k", "top_p", "min_p",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "stop",
    "n", "stream", "stream_options", "logprobs", "response_format", "tools", "best_of", "suffix",
]  # fmt: skip
OPTIONS = {
    "/v1/completions": [*SAMPLING, "prompt", "echo"],
    "/v1/chat/completions": [*SAMPLING, "messages", "top_logprobs", "truncate"],
    "/v1/embeddings": ["input", "model", "encoding_format", "dimensions"],
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "/v1/embeddings": {"input": "a"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(small_service(context=48)) as found:
        yield found


def connect(server: Running) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), 60)


def post(connection: http.client.HTTPConnection, path: str, body: Any) -> tuple[int, bytes]:
    """A request and its answer; a lone surrogate is sent as JSON escapes it."""
    connection.request("POST", path, json.dumps(body))
    answer = connection.getresponse()
    return answer.status, answer.read()


def settle(server: Running) -> None:
    engine = server.service.engine
    deadline = time.monotonic() + 60
    while not engine.is_idle and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.is_idle and engine.table.used == 0 and engine.table.reserved == 0


@pytest.mark.parametrize(
    ("path", "option"), [(path, option) for path, options in OPTIONS.items() for option in options]
)
def test_no_value_of_an_option_is_a_server_error(server: Running, path: str, option: str) -> None:
    connection = connect(server)
    answers = [post(connection, path, {**BODIES[path], option: value}) for value in VALUES]
    connection.close()
    for value, (status, text) in zip(VALUES, answers, strict=True):
        assert status in (200, 400, 404, 429), (value, status, text[:300])
        text.decode()  # whatever was given, answers are UTF-8
        if status != 200:
            assert json.loads(text)["error"]["message"], value
        elif not text.startswith(b"data: "):
            json.loads(text, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    settle(server)
    assert server.service.worker.is_alive


def test_the_server_answers_as_before(server: Running) -> None:
    connection = connect(server)
    body = {"prompt": "abc", "max_tokens": 5, "temperature": 0}
    first = json.loads(post(connection, "/v1/completions", body)[1])["choices"]
    for path in OPTIONS:
        for hostile in ({}, {"messages": "é"}, {"input": []}, HUGE, "é", [], None):
            assert post(connection, path, hostile)[0] == 400, (path, hostile)
    assert json.loads(post(connection, "/v1/completions", body)[1])["choices"] == first
    connection.close()


def test_too_many_texts_are_refused(server: Running) -> None:
    connection = connect(server)
    for path, name in (("/v1/completions", "prompt"), ("/v1/embeddings", "input")):
        status, text = post(connection, path, {name: ["a"] * 2049})
        assert status == 400 and b"at most 2048" in text
    connection.close()


def test_clients_that_go_at_any_moment_leave_others_alone(server: Running) -> None:
    """Before the answer, after its first piece, in the middle; the ledger is as before."""
    body = {"prompt": "abc", "max_tokens": 40, "seed": 1, "stream": True}
    whole = {**body, "stream": False}

    def text() -> Any:
        connection = connect(server)
        found = json.loads(post(connection, "/v1/completions", whole)[1])["choices"]
        connection.close()
        return found

    expected = text()
    settle(server)
    live = LEDGER.live

    def client(number: int) -> Any:
        if number % 6 == 0:
            return text()
        connection = connect(server)
        connection.request("POST", "/v1/completions", json.dumps({**body, "seed": number}))
        if number % 6 > 1:
            answer = connection.getresponse()
            for _ in range(number % 6 * 4 - 7):
                answer.readline()
        connection.close()
        return expected

    with ThreadPoolExecutor(12) as pool:
        assert all(found == expected for found in pool.map(client, range(36)))
    settle(server)
    assert LEDGER.live == live
