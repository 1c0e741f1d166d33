"""Tensors and programs' state in files: PyTorch's format, and safetensors.

Reading a file never runs code of its choosing, whatever is in it; writing never harms the file
that was there before. ``docs/design/files.md`` says how.
"""

from evergrad.io import safetensors
from evergrad.io.loading import load
from evergrad.io.saving import save

__all__ = ["load", "safetensors", "save"]
