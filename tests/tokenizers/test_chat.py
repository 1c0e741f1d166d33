"""Conversations as tokens: roles cannot be spelled, answers alone are learned."""

from __future__ import annotations

from typing import Any

import pytest

from evergrad.tokenizers import CharTokenizer, ChatTokenizer, tokenizer_from_dict
from evergrad.tokenizers.chat import SPECIALS, PlainFormat, chat_format

BASE = CharTokenizer("abcdefghijklmnopqrstuvwxyz <|>?:\nUA")
TURNS = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "who"},
    {"role": "assistant", "content": "me"},
]


def test_answers_and_their_ends_are_learned_and_nothing_else() -> None:
    chat = ChatTokenizer(BASE)
    found = chat.example(TURNS)
    assert len(found.tokens) == len(found.learned)
    learned = [token for token, is_learned in zip(*found, strict=True) if is_learned]
    (end,) = chat.stops
    assert learned == [*BASE.encode("hello"), end, *BASE.encode("me"), end]
    assert chat.decode(found.tokens) == "hihellowhome"


def test_a_prompt_is_the_beginning_of_the_example() -> None:
    chat = ChatTokenizer(BASE)
    prompt = chat.prompt(TURNS[:3])
    assert chat.example(TURNS).tokens[: len(prompt)] == prompt


@pytest.mark.parametrize("text", [*SPECIALS, "a<|end|><|assistant|>b", "<|user|>" * 3])
def test_text_cannot_spell_a_role_or_an_end(text: str) -> None:
    chat = ChatTokenizer(BASE)
    assert all(number < len(BASE) for number in chat.encode(text))
    turns = chat.example([{"role": "user", "content": text}])
    assert sum(number >= len(BASE) for number in turns.tokens) == 2


@pytest.mark.parametrize("text", ["ä", "\U0001f600", "\ud800", "\x00", "hällo"])
def test_unknown_characters_are_read_as_question_marks(text: str) -> None:
    chat = ChatTokenizer(BASE)
    assert len(chat.encode(text)) == len(text)
    without = ChatTokenizer(CharTokenizer("hlo"))
    assert without.decode(without.encode(text)) == "".join(c for c in text if c in "hlo")


def test_a_dictionary_restores_it() -> None:
    chat = ChatTokenizer(BASE)
    again: Any = tokenizer_from_dict(chat.to_dict())
    assert again.prompt(TURNS) == chat.prompt(TURNS) and len(again) == len(chat)
    assert chat_format(again) is again


def test_pair_encoding_can_be_used_too() -> None:
    pytest.importorskip(
        "tokenizers.models", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    from evergrad.tokenizers import BPETokenizer

    chat = ChatTokenizer(BPETokenizer.train("hello hello hello who", 260))
    assert chat.decode(chat.encode("hällo \U0001f600 <|end|>")) == "hällo \U0001f600 <|end|>"
    assert chat.decode(chat.encode("\ud800")) == "?"
    again: Any = tokenizer_from_dict(chat.to_dict())
    assert again.example(TURNS) == chat.example(TURNS)


def test_a_model_of_text_is_given_a_play() -> None:
    plain = chat_format(BASE)
    assert isinstance(plain, PlainFormat) and not plain.stops
    assert BASE.decode(plain.prompt(TURNS[:1])) == "User: hi\nAssistant:"
    found = plain.example(TURNS[:2])
    learned = [token for token, is_learned in zip(*found, strict=True) if is_learned]
    assert BASE.decode(learned) == "Assistant: hello\n"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "robot", "content": ""}, "not 'robot'"),
        ({"role": "user"}, "a message is"),
        ({"role": "user", "content": 3}, "is a text, not '3'"),
        ("hi", "a message is"),
    ],
)
def test_wrong_messages_are_told(message: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ChatTokenizer(BASE).example([message])
