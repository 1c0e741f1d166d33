"""A language model with LSTM layers: what it has read is one state of fixed size."""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import evergrad as eg
from evergrad import nn
from evergrad.models.model import Model, require_positive, require_probability
from evergrad.nn import functional as F


@dataclass(frozen=True)
class LSTMConfig:
    """The sizes of an LSTM language model.

    >>> eg.models.LSTMConfig(layers=3).width
    128
    """

    vocabulary: int = 256
    context: int = 64  # tokens it is trained to look back; it may read on for ever
    layers: int = 2
    width: int = 128
    dropout: float = 0.0  # between layers
    tie: bool = True  # tokens are scored with the weights that embed them

    def __post_init__(self) -> None:
        require_positive(self, "vocabulary", "context", "layers", "width")
        require_probability(self, "dropout")


class State:
    """What the layers remember of one sequence: (layers, 1, width), twice, written in place."""

    limit = None  # however long the sequence

    def __init__(self, config: LSTMConfig, dtype: eg.dtype) -> None:
        self.hidden: eg.Tensor = eg.zeros(config.layers, 1, config.width, dtype=dtype)
        self.cell: eg.Tensor = eg.zeros(config.layers, 1, config.width, dtype=dtype)

    def reset(self) -> None:
        """Begin with another sequence."""
        self.hidden.zero_()
        self.cell.zero_()


class LSTMLanguageModel(Model):
    """Token embedding, LSTM layers, scores of the next token.

    >>> config = eg.models.LSTMConfig(vocabulary=10, layers=1, width=16)
    >>> tokens = eg.zeros(2, 5, dtype=eg.int64)
    >>> eg.models.LSTMLanguageModel(config).loss(tokens, tokens).shape
    evergrad.Size([])
    """

    config_type = LSTMConfig
    config: LSTMConfig

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__(config)
        self.tokens: nn.Embedding = nn.Embedding(config.vocabulary, config.width)
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm: nn.LSTM = nn.LSTM(
            config.width, config.width, config.layers, dropout=between, batch_first=True
        )
        self.drop: nn.Dropout = nn.Dropout(config.dropout)
        self.head: nn.Linear | None = (
            None if config.tie else nn.Linear(config.width, config.vocabulary, bias=False)
        )
        nn.init.normal_(self.tokens.weight, std=config.width**-0.5)

    def forward(
        self, tokens: eg.Tensor, cache: State | None = None
    ) -> eg.Tensor:  # (B, T) -> (B, T, vocabulary)
        """Scores of the token after each. With a cache: after those it has seen, too."""
        x = self.drop(self.tokens(tokens))  # (B, T, C)
        before = None if cache is None else (cache.hidden, cache.cell)
        x, (hidden, cell) = self.lstm(x, before)  # (B, T, C), twice (layers, B, C)
        if cache is not None:
            cache.hidden.copy_(hidden)
            cache.cell.copy_(cell)
        weight = self.tokens.weight if self.head is None else self.head.weight
        return F.linear(self.drop(x), weight)

    def new_cache(self) -> State:
        """The state before the first token of one sequence."""
        return State(self.config, self.tokens.weight.dtype)

    def loss(self, tokens: eg.Tensor, following: eg.Tensor) -> eg.Tensor:
        """The mean cross-entropy, in nats, of the tokens that follow: both (B, T)."""
        return F.cross_entropy(self(tokens).flatten(0, 1), following.flatten())
