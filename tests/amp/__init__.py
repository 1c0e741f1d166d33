"""Mixed precision, compared with PyTorch's on the CPU."""
