"""The tensor, under the name it once had."""

from evergrad.core.tensor import Tensor as Variable

__all__ = ["Variable"]
