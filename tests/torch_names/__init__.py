"""PyTorch's names on evergrad, and programs that use them."""
