"""Ops of PyTorch's database that are not replayed, or differ, each with the reason."""

_TIES = "which of several equal elements comes first is not determined"
_COARSE = "in bfloat16 another element or bin is the nearest: positions are rounded once"
_REAL_DIAGONAL = "the diagonal is real: imaginary parts of its cotangent are left out"

# Private operators of PyTorch's own compilers and sharded training, which programs do not call.
EXCEPTIONS = {
    "_batch_norm_with_update": "private: reserves memory of cuDNN",
    "hash_tensor": "a checksum of PyTorch's own making",
    "sparse.mm.reduce": "products of compressed rows are sums; no mean or maximum",
    "sparse.sampled_addmm": "sparse results are not written into a given tensor",
    "addbmm": "PyTorch's in-place form gives the tensor another shape",
    "histogramdd": "the edges are a tuple, which out= cannot have",
    "as_strided.partial_views": "no derivative of strides beyond a leaf that is itself a view",
    "as_strided_scatter": "an overwritten element has no gradient; PyTorch gives it one",
    "torch.ops.aten._safe_softmax.default": "second derivatives are 0 where PyTorch's are NaN",
    "argsort": _TIES,
    "kthvalue": _TIES,
    "sort": _TIES,
    "topk": _TIES,
    "histc": _COARSE,
    "nn.functional.grid_sample": _COARSE,
    "grid_sampler_2d": _COARSE,
    "matrix_exp": "in bfloat16 PyTorch's squaring overflows earlier",
    "chalf": "complex32 is a name and a storage type; NumPy has no arithmetic for it",
    "cholesky": _REAL_DIAGONAL,
    "linalg.cholesky": _REAL_DIAGONAL,
    "linalg.cholesky_ex": _REAL_DIAGONAL,
    "cholesky_inverse": "only the triangle that is read has a gradient; PyTorch fills both",
    "cholesky_solve": "only the triangle that is read has a gradient; PyTorch fills both",
    "linalg.norm.subgradients_at_zero": "second derivatives at zero are 0; PyTorch's are NaN",
    "masked.logaddexp": "second derivatives at masked places are 0; PyTorch's are NaN",
    "nn.functional.ctc_loss": "the exact gradient; PyTorch's holds only behind log_softmax",
    "nn.functional.linear_cross_entropy.chunked": "has second derivatives; PyTorch gives zeros",
    "nn.functional.linear_cross_entropy.chunked_none":
        "has second derivatives; PyTorch gives zeros",
    "special.bessel_j0": "correct to 1e-13; PyTorch's polynomials to 1e-7",
    "special.bessel_y1": "correct to 1e-13; PyTorch's polynomials to 1e-7",
}  # fmt: skip
