"""Tensors from a description."""
