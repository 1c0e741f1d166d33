"""Tokenizers: every text there and back, the same again from a dictionary, clear errors."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergrad.tokenizers import (
    BPETokenizer,
    CharTokenizer,
    Tokenizer,
    tokenizer_from_dict,
    train_tokenizer,
)

TEXT = "the cat sat on the mat; the dog sat on the log.\n" * 20 + "naïve café, 日本語, 😀\n"


@cache
def pairs() -> BPETokenizer:
    """A byte-level tokenizer, where the package for it is installed."""
    pytest.importorskip(
        "tokenizers.models", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    return BPETokenizer.train(TEXT, 280)


def trained(kind: str) -> Tokenizer:
    return pairs() if kind == "bpe" else CharTokenizer.train(TEXT)


@given(st.text(min_size=1))
def test_characters_there_and_back(text: str) -> None:
    tokenizer = CharTokenizer.train(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_array(text).tolist() == ids
    assert len(tokenizer) == len(set(text)) and max(ids) < len(tokenizer)


@given(st.text())
def test_pairs_there_and_back_for_text_they_never_saw(text: str) -> None:
    ids = pairs().encode(text)
    assert pairs().decode(ids) == text
    assert all(0 <= number < len(pairs()) for number in ids)


@given(st.text())
def test_streamed_text_is_whole(text: str) -> None:
    tokenizer = pairs()
    assert "".join(tokenizer.stream(iter(tokenizer.encode(text)))) == text


def test_a_stream_holds_back_parts_of_a_character() -> None:
    ids = pairs().encode("日\U0001f400")
    assert len(ids) > 2
    assert list(pairs().stream(ids)) == ["日", "\U0001f400"]


def test_a_stream_ends_with_what_it_has() -> None:
    broken = pairs().encode("\U0001f400")[:2]
    assert "".join(pairs().stream(broken)) == "\ufffd"


def test_pairs_shorten_the_text_they_were_trained_on() -> None:
    assert len(pairs()) == 280
    assert len(pairs().encode(TEXT)) < len(TEXT) / 2


def test_training_is_deterministic() -> None:
    expected = pairs().to_dict()
    assert BPETokenizer.train(TEXT, 280).to_dict() == expected


def test_a_short_text_gives_fewer_pairs_than_asked_for() -> None:
    pairs()
    assert 256 < len(BPETokenizer.train("aaab", 1000)) < 270


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_restored_through_json(kind: str) -> None:
    tokenizer = trained(kind)
    state = json.loads(json.dumps(tokenizer.to_dict()))
    again = tokenizer_from_dict(state)
    assert type(again) is type(tokenizer) and len(again) == len(tokenizer)
    assert again.to_dict() == tokenizer.to_dict()
    assert again.encode(TEXT) == tokenizer.encode(TEXT)


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_trained_by_name(kind: str) -> None:
    expected = trained(kind)
    assert train_tokenizer(kind, TEXT, 280).to_dict() == expected.to_dict()


@pytest.mark.parametrize("kind", ["char", "bpe"])
@pytest.mark.parametrize("number", [-1, 5000])
def test_numbers_that_are_no_tokens(kind: str, number: int) -> None:
    with pytest.raises(ValueError, match=f"no token {number}: this tokenizer has"):
        trained(kind).decode([0, number])


def test_unknown_kinds_name_the_nearest() -> None:
    with pytest.raises(ValueError, match="no tokenizer 'chars': did you mean 'char'"):
        train_tokenizer("chars", TEXT, 300)
    with pytest.raises(ValueError, match="no tokenizer None: there are char, bpe"):
        tokenizer_from_dict({})


def test_unknown_characters_are_named() -> None:
    with pytest.raises(ValueError, match="'z' is not in the vocabulary of 3"):
        CharTokenizer.train("abc").encode("az")


def test_what_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="the text is empty"):
        CharTokenizer.train("")
    with pytest.raises(ValueError, match="no room for the 256 bytes"):
        BPETokenizer.train(TEXT, 100)


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"character 2 of the text, '\\ud800'"):
        pairs().encode("ab\ud800")


def test_a_missing_package_is_named_with_the_way_to_install_it() -> None:
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from evergrad.tokenizers import BPETokenizer\n"
        "try: BPETokenizer.train('abc', 256)\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'evergrad[app]'" in done.stdout
