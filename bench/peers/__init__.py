"""Whole training steps of evergrad beside those of PyTorch and JAX: see README.md."""
