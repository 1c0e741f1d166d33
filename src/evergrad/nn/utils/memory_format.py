"""Weights of convolutions in a memory format."""

from __future__ import annotations

from typing import TypeVar

from evergrad.core.memory_format import memory_format as MemoryFormat
from evergrad.nn.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from evergrad.nn.module import Module

M = TypeVar("M", bound=Module)


def convert_conv2d_weight_memory_format(module: M, memory_format: MemoryFormat) -> M:
    """Lay the weights of all 2-d convolutions out in a memory format.

    >>> layer = nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(2, 3, 3), eg.channels_last)
    >>> layer.weight.is_contiguous(memory_format=eg.channels_last)
    True
    """
    return _converted(module, memory_format, (Conv2d, ConvTranspose2d))


def convert_conv3d_weight_memory_format(module: M, memory_format: MemoryFormat) -> M:
    """Lay the weights of all 3-d convolutions out in a memory format.

    >>> layer = nn.Conv3d(2, 3, 3)
    >>> layer = nn.utils.convert_conv3d_weight_memory_format(layer, eg.channels_last_3d)
    >>> layer.weight.is_contiguous(memory_format=eg.channels_last_3d)
    True
    """
    return _converted(module, memory_format, (Conv3d, ConvTranspose3d))


def _converted(module: M, memory_format: MemoryFormat, kinds: tuple[type[Module], ...]) -> M:
    for layer in module.modules():
        if isinstance(layer, kinds):
            layer.weight.data = layer.weight.detach().contiguous(memory_format=memory_format)
    return module
