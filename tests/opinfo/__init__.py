"""PyTorch's op database, replayed on evergrad."""
