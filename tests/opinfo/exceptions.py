"""Ops of PyTorch's database that are not replayed, or differ, each with the reason."""

_TIES = "which of several equal elements comes first is not determined"

# Private operators of PyTorch's own compilers and sharded training, which programs do not call.
EXCEPTIONS = {
    "_batch_norm_with_update": "private: reserves memory of cuDNN",
    "_chunk_cat": "private: packs parameters for sharded training",
    "_unsafe_masked_index": "private: an intermediate of PyTorch's compiler",
    "_unsafe_masked_index_put_accumulate": "private: an intermediate of PyTorch's compiler",
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
    "matrix_exp": "in bfloat16 PyTorch's squaring overflows earlier",
    "sinc": "not of complex numbers",
    "chalf": "complex32 is a name and a storage type; NumPy has no arithmetic for it",
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

# Ops some of whose wrong calls are accepted here, or refused with another class of error.
_DIMENSIONS = "NumPy's error for more than 64 dimensions is a ValueError"
_SHAPE = "refused as a wrong shape, which is a RuntimeError; PyTorch raises ValueError"
_EMPTY = "a dimension without elements gives an empty result"
_CAST = "results are cast to the type of out"
LOOSE_ERRORS = {
    "amax": _DIMENSIONS,
    "amin": _DIMENSIONS,
    "aminmax": _DIMENSIONS,
    "arange": "a step of 0 with integers is a RuntimeError, as with floats",
    "cat": "a tensor is a sequence of its rows",
    "complex": _CAST,
    "gather": _CAST,
    "gradient": "meta tensors are accepted beside others",
    "hsplit": "a text is refused with ValueError",
    "masked_fill": "a number that does not fit wraps around",
    "multinomial": _CAST,
    "narrow": "a start of one element is taken as a number",
    "narrow_copy": "an IndexError, as of narrow",
    "nn.functional.adaptive_avg_pool2d": _SHAPE,
    "nn.functional.adaptive_avg_pool3d": _SHAPE,
    "nn.functional.adaptive_max_pool2d": _SHAPE,
    "nn.functional.adaptive_max_pool3d": _SHAPE,
    "nn.functional.max_pool1d": _EMPTY,
    "nn.functional.max_pool3d": _EMPTY,
    "vsplit": "a text is refused with ValueError",
}
