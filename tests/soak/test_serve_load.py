"""Fifty streaming clients on the loopback for two minutes: none dropped, no cross-talk, flat."""

from __future__ import annotations

import threading
import time

import numpy as np

from evergrad.memory.ledger import LEDGER

from serve.running import running, small_service  # isort: skip - a package of tests
from serve.test_server import ask, settle, texts  # isort: skip

CLIENTS = 50
SECONDS = 120


def test_many_clients_for_two_minutes() -> None:
    bodies = [
        {
            "prompt": "abc"[: 1 + i % 3] * (1 + i),
            "max_tokens": 20 + 2 * i,
            "seed": i,
            "stream": True,
        }
        for i in range(24)
    ]
    service = small_service(sequences=32, waiting=64)
    with running(service) as where:
        alone = [texts(ask(where, body=body)[1]) for body in bodies]
        settle(where)
        live, count = LEDGER.live, LEDGER.count
        end = time.monotonic() + SECONDS
        wrong: list[object] = []
        answered = [0] * CLIENTS

        def client(number: int) -> None:
            turn = number
            while time.monotonic() < end:
                status, stream, _ = ask(where, body=bodies[turn % len(bodies)])
                if status != 200 or texts(stream) != alone[turn % len(bodies)]:
                    wrong.append((number, turn, status))
                answered[number] += 1
                turn += 7

        threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert min(answered) > 0
        settle(where)
        assert (LEDGER.live, LEDGER.count) == (live, count)
        metrics = ask(where, "GET", "/metrics")[1].decode()
        print(f"{sum(answered)} answers, p99 between tokens at most {p99(metrics)} s")


def p99(metrics: str) -> float:
    """The bound of the bucket that the 99th percentile of times between tokens is in."""
    name = "evergrad_time_between_tokens_seconds_bucket"
    lines = [line for line in metrics.splitlines() if line.startswith(name)]
    bounds = [line.split('"')[1] for line in lines]
    counts = np.array([float(line.rsplit(" ", 1)[1]) for line in lines])
    return float(bounds[int(np.argmax(counts >= 0.99 * counts[-1]))].replace("+Inf", "inf"))
