"""Tokenizers by name: trained on a text, or restored from a checkpoint."""

from __future__ import annotations

from difflib import get_close_matches

from evergrad.core.types import StateDict
from evergrad.tokenizers.base import Tokenizer
from evergrad.tokenizers.bpe import BPETokenizer
from evergrad.tokenizers.char import CharTokenizer
from evergrad.tokenizers.chat import ChatTokenizer
from evergrad.tokenizers.hugging_face import HuggingFaceTokenizer

KINDS: dict[str, type[CharTokenizer] | type[BPETokenizer]] = {
    "char": CharTokenizer,
    "bpe": BPETokenizer,
}


def train_tokenizer(kind: str, text: str, size: int) -> Tokenizer:
    """A tokenizer of this kind for a text; ``size`` is the number of tokens of ``bpe``.

    Args:
        kind: ``"char"`` or ``"bpe"``
        text: what it is for
        size: number of tokens of a BPE tokenizer

    >>> len(eg.tokenizers.train_tokenizer("char", "hello", 0))
    4
    """
    if _known(kind) is BPETokenizer:
        return BPETokenizer.train(text, size)
    return CharTokenizer.train(text)


def tokenizer_from_dict(state: StateDict) -> Tokenizer:
    """The tokenizer whose ``to_dict`` gave this.

    >>> state = eg.tokenizers.CharTokenizer.train("hello").to_dict()
    >>> eg.tokenizers.tokenizer_from_dict(state).encode("hello")
    [1, 0, 2, 2, 3]
    """
    if not isinstance(state, dict):
        raise ValueError(f"a stored tokenizer is a dictionary, not {type(state).__name__}")
    if state.get("kind") == ChatTokenizer.kind:
        return ChatTokenizer(tokenizer_from_dict(state["base"]))
    if state.get("kind") == HuggingFaceTokenizer.kind:
        return HuggingFaceTokenizer.from_dict(state)
    return _known(state.get("kind")).from_dict(state)


def _known(kind: object) -> type[CharTokenizer] | type[BPETokenizer]:
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    near = get_close_matches(str(kind), KINDS, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(KINDS)}"
    raise ValueError(f"there is no tokenizer {kind!r}: {advice}")
