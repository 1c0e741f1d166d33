"""PyTorch's code generator: not used. Its settings are remembered and change nothing."""

from . import config

__all__ = ["config"]
