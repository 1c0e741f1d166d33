"""Tensor parallelism: layers whose weights are divided among processes."""
