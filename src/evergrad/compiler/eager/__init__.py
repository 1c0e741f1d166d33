"""Generated kernels for eager mode."""
