"""Workloads of many kinds and spellings beside PyTorch: see README.md."""
