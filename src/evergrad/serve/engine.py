"""The decoding engine: many requests at once over one model.

Continuous batching: at each step waiting requests are admitted, parts of their prompts are read,
and every running sequence gets a token, all in programs compiled before the first request. The
pool, the programs' arenas and the weights are all the memory there is.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import evergrad as eg
from evergrad.models.gpt import GPT
from evergrad.models.lora import Adapter, AdapterSwitch
from evergrad.models.model import evaluating, require
from evergrad.serve.paged import BATCHES, ROWS, PagedGPT, Rows
from evergrad.serve.pages import PAGE, PageTable, pages_for
from evergrad.serve.sequence import Event, Request, Sequence
from evergrad.serve.speculative import Speculation

if TYPE_CHECKING:
    from evergrad.core.types import Array


_LOG = logging.getLogger(__name__)
WEIGHTS_AS_ROWS = 8  # so many rows of a product take as long as reading the weights
PREFILL_ROWS = 128  # of programs that read prompts in a step while others wait for a token


class QueueFullError(RuntimeError):
    """As many requests wait as may; try again later."""


@dataclass(frozen=True)
class EngineConfig:
    """Sizes that decide the memory of an engine before it starts."""

    sequences: int = 32  # answered at once
    waiting: int = 128  # more are refused
    pages: int | None = None  # of the pool; None: enough for all sequences at full context
    proposals: int = 4  # tokens that a draft model proposes
    compiled: bool = True

    def __post_init__(self) -> None:
        for name in ("sequences", "proposals"):
            require(
                getattr(self, name) >= 1, f"{name} is {getattr(self, name)}", "choose 1 or more"
            )
        require(self.waiting >= 0, f"waiting is {self.waiting}", "choose 0 or more")


class Engine:
    """Answers requests. :meth:`submit` may be called by any thread, :meth:`step` by one.

    The linear layers of the model are packed in place (:mod:`evergrad.models.packed`): its
    results are the same, and it has no parameters to train or save.
    """

    config: EngineConfig

    def __init__(
        self, model: GPT, config: EngineConfig | None = None, draft: GPT | None = None,
        adapters: Mapping[str, Adapter] | None = None,
    ) -> None:  # fmt: skip
        self.config = config = config or EngineConfig()
        whole = pages_for(model.config.context)
        count = config.sequences * whole if config.pages is None else config.pages
        require(
            count >= whole,
            f"{count} pages of {PAGE} tokens are less than one context of {model.config.context}",
            f"give the pool at least {whole} pages",
        )
        self.model = model
        self.table: PageTable = PageTable(count)
        self.paged: PagedGPT = PagedGPT(model, count, config.compiled)
        self.adapters: AdapterSwitch = AdapterSwitch(model, adapters or {})
        self.speculation: Speculation | None = self._speculation(draft, count)
        self._lock = threading.Lock()  # of the queue
        self._compute = threading.Lock()  # of the weights and the pool
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self.steps: int = 0
        self.written: int = 0  # tokens, by all requests so far

    def _speculation(self, draft: GPT | None, pages: int) -> Speculation | None:
        if draft is None:
            return None
        own, other = self.model.config, draft.config
        require(
            own.vocabulary == other.vocabulary and own.context <= other.context,
            f"the draft model has {other.vocabulary} tokens and a context of {other.context}, the "
            f"model {own.vocabulary} and {own.context}",
            "draft with a model of the same tokenizer and at least the same context",
        )
        paged = PagedGPT(draft, pages, self.config.compiled)
        return Speculation(self.paged, paged, self.config.proposals)

    # -- any thread ---------------------------------------------------------------------------

    def submit(self, request: Request, tell: Callable[[Event], None]) -> Sequence:
        """Enter a request; ``tell`` is called by the engine's thread with each event."""
        context = self.paged.context
        require(len(request.prompt) > 0, "the prompt is empty", "give at least one token")
        require(
            len(request.prompt) < context,
            f"the prompt has {len(request.prompt)} tokens, the model looks at {context}",
            "give a shorter prompt",
        )
        self._check_tokens(request.prompt)
        self._check_tokens(request.sampling.logit_bias)
        require(request.max_tokens >= 1, f"max_tokens is {request.max_tokens}", "choose 1 or more")
        require(
            request.adapter is None or request.adapter in self.adapters.adapters,
            f"there is no adapter {request.adapter!r}",
            f"there are {', '.join(self.adapters.adapters) or 'none'}",
        )
        most = min(request.max_tokens, context - len(request.prompt))
        if most != request.max_tokens:
            request = Request(**{**request.__dict__, "max_tokens": most})
        found = Sequence(request, tell)
        with self._lock:
            if len(self._waiting) >= self.config.waiting + self._free_places():
                raise QueueFullError(f"{len(self._waiting)} requests are waiting")
            self._waiting.append(found)
        return found

    def _check_tokens(self, tokens: Iterable[int]) -> None:
        wrong = [token for token in tokens if not 0 <= token < self.paged.vocabulary]
        require(not wrong, f"there is no token {str(wrong[:1])[:80]}", "use the model's tokenizer")

    def _free_places(self) -> int:
        return max(0, self.config.sequences - len(self._running))

    @property
    def load(self) -> tuple[int, int]:
        """How many sequences run, and how many wait."""
        return len(self._running), len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._waiting

    # -- the engine's thread ------------------------------------------------------------------

    def prepare(self) -> None:
        """Compile every program."""
        batches = [size for size in BATCHES if size < 2 * self.config.sequences]
        self.paged.prepare(batches, verify=0 if self.speculation is None else 1)
        if self.speculation is not None:
            self.speculation.draft.prepare(batches=(1,))

    def step(self) -> None:
        """Admit, read parts of prompts, write one token of each running sequence."""
        with self._compute:
            self._admit()
            self._prefill()
            self._decode()
            self._sweep()
        self.steps += 1

    def run(self) -> None:
        """Steps until nothing is left to do."""
        while not self.is_idle:
            self.step()

    def fail(self) -> None:
        """End all requests after an error; the engine can go on with others."""
        with self._lock:
            self._running += self._waiting
            self._waiting.clear()
        for sequence in self._running:
            sequence.finish("error")
        self._sweep()

    def embed(self, tokens: tuple[int, ...]) -> list[float]:
        """The mean of the features of all tokens under the model alone, of length 1.

        May be called by any thread.
        """
        self._check_tokens(tokens)
        with self._compute, evaluating(self.paged.modules):
            adapter = self.adapters.current
            self.adapters.use(None)
            features = self.model.features(eg.tensor([list(tokens)]))[0].mean(0)
            found: list[float] = (features / features.norm()).tolist()
            self.adapters.use(adapter)
        return found

    def _admit(self) -> None:
        """Take waiting requests in their order, as long as there is room.

        One with another adapter waits until all others have ended: weights are those of one.
        """
        self._forget_cancelled()
        while len(self._running) < self.config.sequences:
            with self._lock:
                if not self._waiting:
                    return
                first = self._waiting[0]
                if first.request.adapter != self.adapters.current:
                    if self._running:
                        return
                    self.adapters.use(first.request.adapter)
                if not first.admit(self.table):
                    return
                self._running.append(self._waiting.popleft())

    def _forget_cancelled(self) -> None:
        """End waiting requests that were cancelled, also behind others: they take no room."""
        with self._lock:
            gone = [sequence for sequence in self._waiting if sequence.is_cancelled]
            if gone:
                self._waiting = deque(s for s in self._waiting if s not in gone)
        for sequence in gone:
            sequence.finish("cancelled")

    def _prefill(self) -> None:
        """Read parts of prompts: of several together, or a longer part of one."""
        others_wait = any(sequence.is_prefilled for sequence in self._running)
        budget = PREFILL_ROWS if others_wait else PREFILL_ROWS * 4
        while budget > 0:
            waiting = [s for s in self._running if s.needs_prefill]
            if not waiting:
                return
            count, length = self._prompt_shape(waiting)
            self._read_chunks(waiting[:count], length)
            budget -= count * length

    def _prompt_shape(self, waiting: list[Sequence]) -> tuple[int, int]:
        """The program that reads most tokens in its time, of prompts in their order."""
        left = [len(s.request.prompt) - s.known for s in waiting]

        def speed(shape: tuple[int, int]) -> float:
            count, length = shape
            read = sum(min(rest, length) for rest in left[:count])
            return read / (count * length + WEIGHTS_AS_ROWS)

        return max(self.paged.prompt_shapes, key=speed)

    def _read_chunks(self, sequences: list[Sequence], length: int) -> None:
        """Read so many tokens of each prompt; after the last one of it, write the first."""
        rows = []
        for sequence in sequences:
            before = sequence.known
            end = min(before + length, len(sequence.request.prompt))
            sequence.grow(self.table, end)
            rows.append(Rows(sequence.tokens[before:end], before, sequence.pages))
        for sequence, row, scores in zip(
            sequences, rows, self.paged.prompt_scores(rows), strict=True
        ):
            if self.speculation is not None:
                self.speculation.prefill(row)
                sequence.draft_known = row.start + len(row.tokens)
            sequence.known = row.start + len(row.tokens)
            sequence.name_pages(self.table, row.start)
            if sequence.known == len(sequence.request.prompt):
                self._write(sequence, scores)

    def _decode(self) -> None:
        ready = [s for s in self._running if s.is_prefilled and not s.is_finished]
        ready = [s for s in ready if not s.is_cancelled]
        if self.speculation is not None:
            for sequence in ready:
                before = len(sequence.tokens)
                self.speculation.advance(sequence, self.table)
                self.written += len(sequence.tokens) - before
            return
        ready.sort(key=lambda sequence: sequence.known)  # batches of like length: smaller tables
        for begin in range(0, len(ready), ROWS):
            self._decode_batch(ready[begin : begin + ROWS])

    def _decode_batch(self, batch: list[Sequence]) -> None:
        for sequence in batch:
            sequence.grow(self.table, len(sequence.tokens))
        rows = [Rows(s.tokens[s.known :], s.known, s.pages) for s in batch]
        for sequence, scores in zip(batch, self.paged.last_scores(rows), strict=True):
            sequence.known += 1
            self._write(sequence, scores)

    def _write(self, sequence: Sequence, scores: Array) -> None:
        """Draw and write a token; an error ends this sequence and no other."""
        self.written += 1
        try:
            sequence.write(sequence.sampler.draw(scores), scores)
        except Exception:
            _LOG.exception("no token could be drawn; the request is ended")
            sequence.finish("error")

    def _sweep(self) -> None:
        """Take the pages of sequences that have ended."""
        for sequence in self._running:
            if sequence.is_cancelled:
                sequence.finish("cancelled")
            if sequence.is_finished:
                sequence.release(self.table)
        with self._lock:
            self._running = [s for s in self._running if not s.is_finished]

    # -- memory -------------------------------------------------------------------------------

    def memory(self) -> dict[str, int]:
        """Bytes of what an engine keeps, known before it answers anything: ``programs`` are the
        arenas of those that :meth:`prepare` has compiled."""
        models = [self.paged] + ([] if self.speculation is None else [self.speculation.draft])
        weights = sum(p.numel() * p.element_size() for m in models for p in _tensors(m.model))
        return {
            "weights": weights,
            "pool": sum(paged.pool_bytes() for paged in models),
            "programs": sum(paged.program_bytes() for paged in models),
        }


def _tensors(model: GPT) -> list[eg.Tensor]:
    return [*model.parameters(), *model.buffers()]
