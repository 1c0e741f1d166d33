"""Text of tokens as they come: whole characters, stop sequences."""

from __future__ import annotations

import pytest

from evergrad.serve.detokenizer import Detokenizer
from evergrad.tokenizers import CharTokenizer

CHARACTERS = CharTokenizer("abcdefgh ST\n")


def parts(text: str, *stops: str) -> tuple[list[str], bool]:
    found = Detokenizer(CHARACTERS, stops)
    told = [found.add(token) for token in CHARACTERS.encode(text)]
    return [*told, found.finish()], found.is_stopped


def test_tokens_are_told_at_once() -> None:
    assert parts("abc") == (["a", "b", "c", ""], False)


@pytest.mark.parametrize(
    ("text", "stops", "expected", "stopped"),
    [
        ("abSTcd", ("ST",), "ab", True),
        ("abScd", ("ST",), "abScd", False),
        ("abS", ("ST",), "abS", False),
        ("aSSTb", ("ST",), "aS", True),
        ("abcabd", ("abd",), "abc", True),
        ("STa", ("ST",), "", True),
        ("ab\nT", ("\n", "b"), "a", True),
        ("abc", ("",), "abc", False),
        ("aaab", ("aab",), "a", True),
    ],
)
def test_stop_sequences(text: str, stops: tuple[str, ...], expected: str, stopped: bool) -> None:
    told, is_stopped = parts(text, *stops)
    assert ("".join(told), is_stopped) == (expected, stopped)


def test_what_may_become_a_stop_waits() -> None:
    assert parts("abSc", "STT")[0] == ["a", "b", "", "Sc", ""]


def test_characters_of_several_tokens_come_whole() -> None:
    pytest.importorskip(
        "tokenizers.models", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    from evergrad.tokenizers import BPETokenizer

    tokenizer = BPETokenizer.train("abc", 256)
    text = "ä€\U0001f600x"
    found = Detokenizer(tokenizer, ["x"])
    told = [found.add(token) for token in tokenizer.encode(text)]
    assert [part for part in told if part] == ["ä", "€", "\U0001f600"] and found.is_stopped
    half = Detokenizer(tokenizer)
    assert [half.add(token) for token in tokenizer.encode("€")[:2]] == ["", ""]
    assert half.finish() == "\ufffd"
