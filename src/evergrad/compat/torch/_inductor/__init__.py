"""PyTorch's code generator: not used. Its settings are remembered and change nothing."""

from evergrad._inductor import config

__all__ = ["config"]
