"""The bytes of single tokens, which may be parts of characters."""

from __future__ import annotations

from typing import Any

import pytest

from evergrad.tokenizers import BPETokenizer, CharTokenizer, ChatTokenizer
from evergrad.tokenizers.hugging_face import HuggingFaceTokenizer

TEXT = "na\u00efve \u2603 \U0001f600 \u00ad\x00\x7f\n <0x41> \u0120 e\u0301"


def byte_level_engine(library: Any) -> Any:
    engine = library.Tokenizer(library.models.BPE())
    engine.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(
        vocab_size=270, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    engine.train_from_iterator([TEXT], trainer)
    return engine


@pytest.fixture(params=["char", "chat", "bpe", "chat of bpe", "hugging face"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param in ("char", "chat"):
        found = CharTokenizer.train(TEXT)
        return ChatTokenizer(found) if request.param == "chat" else found
    library = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    if request.param == "hugging face":
        return HuggingFaceTokenizer(byte_level_engine(library))
    found = BPETokenizer.train(TEXT, 270)
    return ChatTokenizer(found) if request.param == "chat of bpe" else found


def test_bytes_of_tokens_join_to_those_of_the_text(tokenizer: Any) -> None:
    tokens = tokenizer.encode(TEXT)
    assert b"".join(tokenizer.token_bytes(token) for token in tokens) == TEXT.encode()


def test_every_token_has_bytes(tokenizer: Any) -> None:
    for token in range(len(tokenizer)):
        own, text = tokenizer.token_bytes(token), tokenizer.decode([token])
        assert own == text.encode() or (not text or "\ufffd" in text)


def test_bytes_of_a_fallback() -> None:
    library = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed: pip install 'evergrad[app]'"
    )
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"a": 256}
    engine = library.Tokenizer(library.models.BPE(vocabulary, [], byte_fallback=True))
    engine.decoder = library.decoders.Sequence(
        [library.decoders.ByteFallback(), library.decoders.Fuse()]
    )
    tokenizer = HuggingFaceTokenizer(engine)
    assert [tokenizer.token_bytes(token) for token in (0xE2, 0x41, 256)] == [b"\xe2", b"A", b"a"]


@pytest.mark.parametrize("number", [-1, 10**9])
def test_numbers_that_are_no_token(tokenizer: Any, number: int) -> None:
    if tokenizer.kind == "hugging face":  # models may have more rows than tokens
        assert tokenizer.token_bytes(number) == b""
        return
    with pytest.raises(ValueError, match="no token"):
        tokenizer.token_bytes(number)
