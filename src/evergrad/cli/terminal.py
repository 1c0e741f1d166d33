"""A chat in the terminal: answers come word by word, Ctrl-C stops one, commands begin with /."""

from __future__ import annotations

import json
import signal
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from evergrad.cli.served import memory_line
from evergrad.serve.detokenizer import Detokenizer
from evergrad.serve.sampling import Sampling
from evergrad.serve.sequence import Event, Finished, Request
from evergrad.serve.service import Service
from evergrad.tokenizers.base import REPLACEMENT
from evergrad.utils.atomic_file import replacing

if TYPE_CHECKING:
    from types import ModuleType

T = TypeVar("T", int, float)

HELP = """\
/temp 0.7    temperature; 0 always takes the likeliest token
/topk 20     among so many of the likeliest tokens; 0 for all
/topp 0.9    among the fewest that are likely to this degree; 1 for all
/len 200     the longest answer, in tokens
/seed 1      the same seed gives the same answers; /seed none for random ones
/reset       forget the conversation
/save FILE   write the conversation as a line of JSON, as evergrad finetune reads it
/quit        end (also Ctrl-D)"""


@dataclass
class Terminal:
    """One conversation with a model whose engine runs in this thread."""

    service: Service
    temperature: float = 0.7
    length: int = 200
    seed: int | None = None
    top_k: int | None = None
    top_p: float | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    read: Callable[[str], str] = input
    is_over: bool = False

    def run(self) -> None:
        """Read, answer, until the end of the input."""
        self._sampling()
        self.service.engine.prepare()  # so that the first answer comes at once
        click.echo(memory_line(self.service))
        _edit_lines()
        click.echo("/help shows the commands, /quit ends.")
        while not self.is_over:
            try:
                self._read_and_do()
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:  # nothing is being answered: the line is given up
                click.echo("\n(/quit ends)")

    def _read_and_do(self) -> None:
        line = self.read("> ").strip()
        if line.startswith("/"):
            self.command(line)
        elif line:
            self.answer(line)

    # -- answers ------------------------------------------------------------------------------

    def answer(self, text: str) -> None:
        """Show the answer to a message as it comes; what came before Ctrl-C counts as said."""
        question = {"role": "user", "content": text}
        found: list[str] = []
        begin = time.perf_counter()
        count = 0
        try:
            prompt = self.service.chat_prompt([*self.messages, question], shorten=True)
            count = self._follow(prompt, found)
        except KeyboardInterrupt:
            click.echo(click.style(" (stopped)", dim=True), nl=False)
        except ValueError as error:
            click.echo(f"error: {error}")
            return
        self.messages += [question, {"role": "assistant", "content": "".join(found)}]
        rate = count / max(time.perf_counter() - begin, 1e-9)
        told = f"  [{count} tokens, {rate:.0f} tokens/s]" if count else ""
        click.echo(click.style(told, dim=True))

    def _follow(self, prompt: list[int], found: list[str]) -> int:
        engine = self.service.engine
        events: list[Event] = []
        text = Detokenizer(self.service.tokenizer)
        request = Request(tuple(prompt), self.length, self._sampling(), self.service.format.stops)
        sequence = engine.submit(request, events.append)
        count = 0
        try:
            while True:
                with _uninterrupted():
                    engine.step()
                for event in events:
                    is_end = isinstance(event, Finished)
                    piece = text.finish() if isinstance(event, Finished) else text.add(event.token)
                    found.append(piece)
                    click.echo(_printable(piece), nl=False)
                    count += not is_end
                    if is_end:
                        return count
                events.clear()
        finally:
            with _uninterrupted():
                sequence.cancel()
                engine.run()

    def _sampling(self) -> Sampling:
        return Sampling(self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)

    # -- commands -----------------------------------------------------------------------------

    def command(self, line: str) -> None:
        """Do what a line that begins with / says."""
        word, _, value = line[1:].partition(" ")
        name = word.lower()
        before = self.temperature, self.top_k, self.top_p, self.length, self.seed
        try:
            self._do(name, value.strip())
            self._sampling()
        except (ValueError, OSError, RuntimeError) as error:
            self.temperature, self.top_k, self.top_p, self.length, self.seed = before
            click.echo(f"error: {error}")

    def _do(self, name: str, value: str) -> None:
        if name == "temp":
            self.temperature = _number(float, name, value)
        elif name == "topk":
            self.top_k = _number(int, name, value) or None
        elif name == "topp":
            chosen = _number(float, name, value)
            self.top_p = None if chosen == 1 else chosen
        elif name == "len":
            self.length = _positive(_number(int, name, value))
        elif name == "seed":
            self.seed = None if value in ("", "none") else _number(int, name, value)
        elif name == "reset":
            self.messages.clear()
        elif name == "save":
            self._save(value)
        elif name == "quit":
            self.is_over = True
        else:
            click.echo(HELP if name == "help" else f"there is no command /{name}\n{HELP}")

    def _save(self, value: str) -> None:
        if not value:
            raise ValueError("name a file, as in /save talk.jsonl")
        with replacing(Path(value)) as file:
            line = json.dumps({"messages": self.messages}, ensure_ascii=False)
            file.write(line.encode() + b"\n")
        click.echo(f"saved in {value}")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C takes effect at the end: inside a step it would leave the engine's tables torn."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed.is_set():
        raise KeyboardInterrupt


def _number(kind: type[T], name: str, value: str) -> T:
    try:
        return kind(value)
    except ValueError:
        words = {int: "a whole number", float: "a number"}[kind]
        raise ValueError(f"/{name} takes {words}, not {value!r}") from None


def _positive(length: int) -> int:
    if length < 1:
        raise ValueError(f"the length is at least 1, not {length}")
    return length


def _printable(text: str) -> str:
    """The text without what would command a terminal, such as escape sequences."""
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) != "Cc" else REPLACEMENT for c in text
    )


def _edit_lines() -> ModuleType | None:
    """Arrow keys and earlier lines, where the system has GNU's or BSD's readline."""
    try:
        import readline
    except ImportError:
        return None
    return readline
