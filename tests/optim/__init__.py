"""Optimizers and schedules, compared with PyTorch's."""
