"""The class of compiled modules, under PyTorch's private path."""

from . import OptimizedModule, is_dynamo_supported

__all__ = ["OptimizedModule", "is_dynamo_supported"]
