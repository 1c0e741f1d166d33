"""Distributions, compared with PyTorch's."""
