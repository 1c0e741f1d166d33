"""Sparse and ragged tensors, compared with PyTorch's."""
