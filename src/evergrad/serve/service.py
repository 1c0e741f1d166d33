"""A served model: text in, pieces of text out. Knows tokens and text, nothing of HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evergrad.models.gpt import GPT
from evergrad.models.lora import Adapter
from evergrad.models.model import require
from evergrad.serve.detokenizer import Detokenizer
from evergrad.serve.engine import Engine, EngineConfig
from evergrad.serve.sampling import Sampling
from evergrad.serve.sequence import Finished, Request, Token
from evergrad.serve.worker import Answer, Worker
from evergrad.tokenizers import Tokenizer
from evergrad.tokenizers.chat import Message, chat_format

if TYPE_CHECKING:
    from evergrad.tokenizers.chat import ChatFormat


@dataclass(frozen=True)
class Wanted:
    """What a client asks for, beside the prompt."""

    max_tokens: int | None = None  # None: as many as the context has room for
    sampling: Sampling = field(default_factory=Sampling)
    stops: tuple[str, ...] = ()
    log_probabilities: int | None = None
    adapter: str | None = None


@dataclass(frozen=True)
class Piece:
    """Text that has come, with the tokens behind it; the last has the reason of the end."""

    text: str
    tokens: tuple[Token, ...] = ()
    reason: str | None = None
    written: int = 0  # tokens so far, with the one that ended the answer


class Service:
    """A model with its tokenizer, answering many clients."""

    def __init__(
        self, model: GPT, tokenizer: Tokenizer, name: str, config: EngineConfig | None = None,
        draft: GPT | None = None, adapters: Mapping[str, Adapter] | None = None,
    ) -> None:  # fmt: skip
        self.tokenizer = tokenizer
        self.format: ChatFormat = chat_format(tokenizer)
        self.name = name
        self.engine: Engine = Engine(model, config, draft, adapters)
        self.worker: Worker = Worker(self.engine)

    def start(self) -> None:
        """Compile all programs, then accept requests."""
        self.engine.prepare()
        self.worker.start()

    def stop(self) -> None:
        self.worker.stop()

    @property
    def context(self) -> int:
        return self.engine.paged.context

    def models(self) -> list[str]:
        """The names under which clients may ask: the model, and each adapter of it."""
        return [self.name, *(f"{self.name}:{adapter}" for adapter in self.engine.adapters.adapters)]

    # -- prompts ------------------------------------------------------------------------------

    def chat_prompt(self, messages: Sequence[Message], shorten: bool = False) -> list[int]:
        """The tokens of a conversation; ``shorten`` leaves out its oldest turns if it is too long.

        Half of the context is left for the answer then, and a question goes with its answer.
        """
        require(len(messages) > 0, "messages is empty", "give at least one message")
        prompt = self.format.prompt(messages)
        if not shorten or len(prompt) <= self.context // 2:
            return prompt
        system = list(messages[: messages[0]["role"] == "system"])  # what the system says stays
        turns = messages[len(system) :]
        last = len(turns) - 1
        begins = [n for n in range(1, last) if turns[n]["role"] != "assistant"]
        return self._first_that_fits(system, turns, [*begins, last])

    def _first_that_fits(
        self, system: list[Message], turns: Sequence[Message], begins: Sequence[int]
    ) -> list[int]:
        """The prompt that begins with the first of these turns that leaves room, or the last.

        A conversation can have thousands of turns: the first is found by bisection.
        """
        found: list[int] | None = None
        low, high = 0, len(begins)
        while low < high:
            middle = (low + high) // 2
            prompt = self.format.prompt([*system, *turns[begins[middle] :]])
            if len(prompt) <= self.context // 2:
                found, high = prompt, middle
            else:
                low = middle + 1
        return found or self.format.prompt([*system, *turns[begins[-1] :]])

    def text_prompt(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    # -- answers ------------------------------------------------------------------------------

    def submit(self, prompt: Sequence[int], wanted: Wanted) -> Answer:
        """Enter a request; raises if it cannot be answered, or not now."""
        most = self.context if wanted.max_tokens is None else wanted.max_tokens
        request = Request(
            tuple(prompt), most, wanted.sampling, self.format.stops, wanted.log_probabilities,
            wanted.adapter,
        )  # fmt: skip
        return self.worker.submit(request)

    async def pieces(self, answer: Answer, wanted: Wanted) -> AsyncGenerator[Piece, None]:
        """The answer as it comes, up to a stop sequence, its length or its own end."""
        text = Detokenizer(self.tokenizer, wanted.stops)
        waiting: list[Token] = []
        written = 0
        async with aclosing(answer.events()) as events:
            async for event in events:
                if isinstance(event, Finished):
                    written += event.reason == "stop"
                    yield Piece(text.finish(), tuple(waiting), event.reason, written)
                    return
                written += 1
                waiting.append(event)
                certain = text.add(event.token)
                if text.is_stopped:
                    yield Piece(certain, tuple(waiting), "stop", written)
                    return
                if certain:
                    yield Piece(certain, tuple(waiting), None, written)
                    waiting = []
