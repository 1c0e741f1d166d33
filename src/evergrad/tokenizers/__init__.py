"""Text as numbers: characters, or byte-level pairs trained on the text (``evergrad[app]``)."""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_names

if TYPE_CHECKING:
    from evergrad.tokenizers.base import Tokenizer
    from evergrad.tokenizers.bpe import BPETokenizer
    from evergrad.tokenizers.char import CharTokenizer
    from evergrad.tokenizers.chat import ChatTokenizer
    from evergrad.tokenizers.restore import tokenizer_from_dict, train_tokenizer

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "base": ("Tokenizer",),
            "bpe": ("BPETokenizer",),
            "char": ("CharTokenizer",),
            "chat": ("ChatTokenizer",),
            "restore": ("tokenizer_from_dict", "train_tokenizer"),
        },
    )

__all__ = [
    "BPETokenizer",
    "CharTokenizer",
    "ChatTokenizer",
    "Tokenizer",
    "tokenizer_from_dict",
    "train_tokenizer",
]
