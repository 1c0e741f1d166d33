"""Conversations and preferences in JSONL files: one JSON object in a line.

``{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}`` is
a conversation; ``{"prompt": [messages], "chosen": "text", "rejected": "text"}`` a preference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from evergrad import config
from evergrad.utils.bounded_read import parse_json, read_bounded

Message = dict[str, str]
Conversation = list[Message]

ROLES = ("system", "user", "assistant")
T = TypeVar("T")


class Preference(NamedTuple):
    """What was said, the better and the worse answer."""

    prompt: Conversation
    chosen: str
    rejected: str


def read_conversations(path: str | Path) -> list[Conversation]:
    """The conversations of a file; each has at least one answer."""
    return _read(path, _conversation)


def read_preferences(path: str | Path) -> list[Preference]:
    """The preferences of a file."""
    return _read(path, _preference)


def _read(path: str | Path, parse: Callable[[object], T]) -> list[T]:
    found: list[T] = []
    for number, line in _lines(Path(path).expanduser()):
        try:
            found.append(parse(parse_json(line, "the line")))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    if not found:
        raise ValueError(f"{path} is empty: there is nothing to learn from")
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        found = read_bounded(path, config.UNPACKED_BYTES, "set EVERGRAD_UNPACKED_BYTES")
        text = found.decode("utf-8-sig")  # some editors begin files with a mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    # Not splitlines(): JSON strings may hold the line separators of Unicode as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.removesuffix("\r")


def _conversation(value: object) -> Conversation:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        raise ValueError('expected {"messages": [...]}')
    found = [_message(message) for message in value["messages"]]
    if not any(message["role"] == "assistant" for message in found):
        raise ValueError("no message has the role assistant: there is no answer to learn")
    return found


def _preference(value: object) -> Preference:
    wanted = 'expected {"prompt": [...] or a text, "chosen": a text, "rejected": a text}'
    if not isinstance(value, dict) or not {"prompt", "chosen", "rejected"} <= value.keys():
        raise ValueError(wanted)
    prompt = value["prompt"]
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    texts = value["chosen"], value["rejected"]
    if not isinstance(prompt, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(wanted)
    return Preference([_message(message) for message in prompt], *texts)


def _message(value: object) -> Message:
    if not isinstance(value, dict) or not {"role", "content"} <= value.keys():
        raise ValueError(f'a message is {{"role": ..., "content": ...}}, not {str(value)[:80]}')
    role, content = value["role"], value["content"]
    if role not in ROLES:
        raise ValueError(f"a role is {', '.join(ROLES)}, not {role!r}")
    if not isinstance(content, str):
        raise ValueError(f"the content of a message is a text, not {str(content)[:80]}")
    return {"role": role, "content": content}
