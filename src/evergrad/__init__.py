"""evergrad: tensors, exact gradients and accounted memory, with PyTorch's names."""
