"""AdamW, under PyTorch's module path."""

from evergrad.optim.adam import AdamW

__all__ = ["AdamW"]
