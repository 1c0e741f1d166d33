"""Switches of PyTorch's backends, accepted so that programs that set them run unchanged.

None of the libraries is used here; what is set is remembered and changes nothing.
"""

from . import cpu, cuda, cudnn, mha, mkl, mkldnn, mps, openmp, opt_einsum, quantized

__all__ = [
    "cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "openmp", "opt_einsum", "quantized",
]  # fmt: skip
