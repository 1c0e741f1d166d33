"""ResNet-18 and ResNet-50: convolutions that each learn what to add to their input.

The names of the weights are torchvision's. For pictures of 32 by 32 and the like, ``small`` begins
without the reduction to a quarter that ImageNet's large pictures need.
"""

# Modules called give Any, and so do methods of tensors, which are attached at run time.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import evergrad as eg
from evergrad import nn
from evergrad.models.model import Model, require_choice, require_positive
from evergrad.nn import functional as F

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # in each of the four stages


@dataclass(frozen=True)
class ResNetConfig:
    """The depth of a ResNet and the pictures it sorts.

    >>> eg.models.ResNetConfig(depth=50).classes
    10
    """

    depth: Literal[18, 50] = 18
    classes: int = 10
    channels: int = 3
    width: int = 64  # channels of the first stage; each further one has twice as many
    small: bool = True  # pictures are small: full resolution in the first stage
    zero_init: bool = False  # blocks begin as the identity

    def __post_init__(self) -> None:
        require_choice(self, "depth", tuple(BLOCKS))
        require_positive(self, "classes", "channels", "width")


def conv(before: int, after: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the size of the picture, or divides it by the stride."""
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)


def shortcut(before: int, after: int, stride: int) -> nn.Module | None:
    """What brings a block's input to the shape of its output, if they differ."""
    if before == after and stride == 1:
        return None
    return nn.Sequential(conv(before, after, 1, stride), nn.BatchNorm2d(after))


class BasicBlock(nn.Module):
    """Two convolutions of 3 by 3."""

    bn2: nn.BatchNorm2d
    conv2: nn.Conv2d
    bn1: nn.BatchNorm2d
    conv1: nn.Conv2d

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(before, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample: nn.Module | None = shortcut(before, width, stride)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, before, H, W)
        y = F.relu(self.bn1(self.conv1(x)))  # (B, width, H / stride, W / stride)
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """A convolution of 3 by 3 between two of 1 by 1, which narrow and widen."""

    bn3: nn.BatchNorm2d
    conv3: nn.Conv2d
    bn2: nn.BatchNorm2d
    conv2: nn.Conv2d
    bn1: nn.BatchNorm2d
    conv1: nn.Conv2d

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = self.expansion * width
        self.conv1, self.bn1 = conv(before, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, after, 1), nn.BatchNorm2d(after)
        self.downsample: nn.Module | None = shortcut(before, after, stride)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, before, H, W)
        y = F.relu(self.bn1(self.conv1(x)))  # (B, width, H, W)
        y = F.relu(self.bn2(self.conv2(y)))  # (B, width, H / stride, W / stride)
        y = self.bn3(self.conv3(y))  # (B, 4 width, H / stride, W / stride)
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(Model):
    """A stem, four stages of blocks, the mean over the picture, a score for each class.

    >>> model = eg.models.ResNet(eg.models.ResNetConfig(width=8))
    >>> model(eg.ones(2, 3, 8, 8)).shape
    evergrad.Size([2, 10])
    """

    config_type = ResNetConfig
    config: ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__(config)
        block = BasicBlock if config.depth == 18 else Bottleneck
        before = config.width
        self.conv1: nn.Conv2d = conv(config.channels, before, *((3, 1) if config.small else (7, 2)))
        self.bn1: nn.BatchNorm2d = nn.BatchNorm2d(before)
        for number, count in enumerate(BLOCKS[config.depth]):
            width, stride = config.width << number, 1 if number == 0 else 2
            stage = [block(before, width, stride)]
            before = block.expansion * width
            stage += [block(before, width, 1) for _ in range(count - 1)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*stage))
        self.fc: nn.Linear = nn.Linear(before, config.classes)
        self.initialise()

    def initialise(self) -> None:
        """Draw the weights."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock) and self.config.zero_init:
                nn.init.zeros_(module.bn2.weight)
            elif isinstance(module, Bottleneck) and self.config.zero_init:
                nn.init.zeros_(module.bn3.weight)

    def forward(self, x: eg.Tensor) -> eg.Tensor:  # (B, channels, H, W)
        x = F.relu(self.bn1(self.conv1(x)))  # (B, width, H, W), or half of H and W
        if not self.config.small:
            x = F.max_pool2d(x, 3, stride=2, padding=1)  # (B, width, H / 4, W / 4)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)  # channels double, H and W are halved from stage to stage
        return self.fc(x.mean((2, 3)))  # (B, classes)
