"""LeNet-5: LeCun's network of 1998, with today's rectifiers and maxima for its tanh and means."""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass

import evergrad as eg
from evergrad import nn
from evergrad.models.model import Model, require, require_positive
from evergrad.nn import functional as F


@dataclass(frozen=True)
class LeNetConfig:
    """The pictures LeNet-5 sorts.

    >>> eg.models.LeNetConfig(classes=47).size
    28
    """

    classes: int = 10
    channels: int = 1
    size: int = 28  # height and width of a picture

    def __post_init__(self) -> None:
        require_positive(self, "classes", "channels", "size")
        require(
            self.last_size >= 1,
            f"pictures of {self.size} by {self.size} have nothing left after two poolings",
            "give pictures of at least 12 by 12, or enlarge them",
        )

    @property
    def last_size(self) -> int:
        """Height and width after both convolutions and poolings: 5 for 28."""
        return (self.size // 2 - 4) // 2


class LeNet5(Model):
    """Two convolutions, three linear layers.

    >>> model = eg.models.LeNet5(eg.models.LeNetConfig())
    >>> model(eg.ones(2, 1, 28, 28)).shape
    evergrad.Size([2, 10])
    """

    config_type = LeNetConfig
    config: LeNetConfig

    def __init__(self, config: LeNetConfig) -> None:
        super().__init__(config)
        self.conv1: nn.Conv2d = nn.Conv2d(config.channels, 6, 5, padding=2)
        self.conv2: nn.Conv2d = nn.Conv2d(6, 16, 5)
        self.fc1: nn.Linear = nn.Linear(16 * config.last_size**2, 120)
        self.fc2: nn.Linear = nn.Linear(120, 84)
        self.fc3: nn.Linear = nn.Linear(84, config.classes)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, channels, 28, 28)
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)  # (B, 6, 14, 14)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)  # (B, 16, 5, 5)
        x = F.relu(self.fc1(x.flatten(1)))  # (B, 120)
        x = F.relu(self.fc2(x))  # (B, 84)
        return self.fc3(x)  # (B, classes)
