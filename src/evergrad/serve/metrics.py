"""What a server counts, in Prometheus's text format."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from evergrad import memory
from evergrad.serve.engine import Engine

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters of one server, apart from those of any other in the process."""

    registry: CollectorRegistry

    def __init__(self, engine: Engine) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests: Counter = Counter(
            "evergrad_requests", "requests by path and status", ["path", "status"],
            registry=registry,
        )  # fmt: skip
        self.prompt_tokens: Counter = Counter(
            "evergrad_prompt_tokens", "tokens read", registry=registry
        )
        self.tokens: Counter = Counter("evergrad_tokens", "tokens written", registry=registry)
        self.first: Histogram = Histogram(
            "evergrad_time_to_first_token_seconds", "until the first token",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.between: Histogram = Histogram(
            "evergrad_time_between_tokens_seconds", "from token to token",
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        table = engine.table
        for name, help, value in (
            ("running", "answers in progress", lambda: engine.load[0]),
            ("waiting", "requests in the queue", lambda: engine.load[1]),
            ("pages_used", "pages of the key-value pool in use", lambda: table.used),
            ("pages", "pages of the key-value pool", lambda: table.count),
            ("pages_reused", "pages found instead of computed, so far", lambda: table.reused),
            ("memory_bytes", "bytes of tensors by the ledger", lambda: memory.stats()["live"]),
        ):
            Gauge(f"evergrad_{name}", help, registry=registry).set_function(value)

    def clock(self) -> Clock:
        return Clock(self)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Clock:
    """Times the tokens of one answer."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last = time.perf_counter()
        self._is_first = True

    def note(self, tokens: int) -> None:
        """So many tokens have come."""
        now = time.perf_counter()
        (self._metrics.first if self._is_first else self._metrics.between).observe(now - self._last)
        self._metrics.tokens.inc(tokens)
        self._last, self._is_first = now, False
