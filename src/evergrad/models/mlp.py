"""A multi-layer perceptron: the simplest network that learns from pictures."""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import evergrad as eg
from evergrad import nn
from evergrad.models.model import Model, require_positive, require_probability
from evergrad.nn import functional as F


@dataclass(frozen=True)
class MLPConfig:
    """The sizes of a perceptron.

    >>> eg.models.MLPConfig(inputs=4).width
    256
    """

    inputs: int = 784  # numbers of one example, whatever their shape
    classes: int = 10
    layers: int = 2  # hidden ones
    width: int = 256
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require_positive(self, "inputs", "classes", "layers", "width")
        require_probability(self, "dropout")


class MLP(Model):
    """Hidden layers with rectifiers, then a score for each class.

    >>> model = eg.models.MLP(eg.models.MLPConfig(inputs=4, classes=3, width=8))
    >>> model(eg.ones(2, 4)).shape
    evergrad.Size([2, 3])
    """

    config_type = MLPConfig
    config: MLPConfig

    def __init__(self, config: MLPConfig) -> None:
        super().__init__(config)
        sizes = [config.inputs] + [config.width] * config.layers
        self.hidden: nn.ModuleList = nn.ModuleList(
            nn.Linear(before, after) for before, after in pairwise(sizes)
        )
        self.drop: nn.Dropout = nn.Dropout(config.dropout)
        self.head: nn.Linear = nn.Linear(config.width, config.classes)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, ...)
        x = x.flatten(1)  # (B, inputs)
        for layer in self.hidden:
            x = self.drop(F.relu(layer(x)))  # (B, width)
        return self.head(x)  # (B, classes)
