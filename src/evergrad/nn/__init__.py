"""Building blocks of neural networks, under PyTorch's names."""

from evergrad.nn import functional

__all__ = ["functional"]
