"""Modules and layers, compared with PyTorch's."""
