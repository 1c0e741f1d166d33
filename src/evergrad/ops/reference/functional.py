"""``evergrad.nn.functional``: activations, dropout, attention, interpolation."""

DOCS = {
    "F.gelu": """\
``x * Phi(x)``, with ``Phi`` the normal distribution's probability of being below x.

Args:
    input: floating-point tensor
    approximate: ``"none"``, or ``"tanh"`` for the formula of the first GPTs

>>> F.gelu(eg.tensor([-1.0, 0.0, 1.0]))
tensor([-0.1587,  0.0000,  0.8413])
""",
    "F.silu": """``x * sigmoid(x)``, also called swish.

>>> F.silu(eg.tensor([-1.0, 0.0, 1.0]))
tensor([-0.2689,  0.0000,  0.7311])
""",
    "F.mish": """``x * tanh(softplus(x))``

>>> F.mish(eg.tensor([-1.0, 0.0, 1.0]))
tensor([-0.3034,  0.0000,  0.8651])
""",
    "F.softplus": """``log(1 + exp(beta x)) / beta``: a smooth relu.

Args:
    input: floating-point tensor
    beta: sharpness of the bend
    threshold: above ``beta x > threshold`` the function is x itself

>>> F.softplus(eg.tensor([-1.0, 0.0, 1.0]))
tensor([0.3133, 0.6931, 1.3133])
""",
    "F.elu": """``x`` above zero, ``alpha (exp(x) - 1)`` below.

>>> F.elu(eg.tensor([-1.0, 1.0]))
tensor([-0.6321,  1.0000])
""",
    "F.leaky_relu": """``x`` above zero, ``negative_slope * x`` below.

>>> F.leaky_relu(eg.tensor([-1.0, 1.0]))
tensor([-0.0100,  1.0000])
""",
    "F.relu6": """``min(max(x, 0), 6)``

>>> F.relu6(eg.tensor([-1.0, 3.0, 9.0]))
tensor([0., 3., 6.])
""",
    "F.hardtanh": """``x`` clamped to ``[min_val, max_val]``.

>>> F.hardtanh(eg.tensor([-2.0, 0.5, 2.0]))
tensor([-1.0000,  0.5000,  1.0000])
""",
    "F.hardsigmoid": """``min(max(x + 3, 0), 6) / 6``: sigmoid in three straight lines.

>>> F.hardsigmoid(eg.tensor([-4.0, 0.0, 4.0]))
tensor([0.0000, 0.5000, 1.0000])
""",
    "F.hardswish": """``x * hardsigmoid(x)``

>>> F.hardswish(eg.tensor([-4.0, 1.0, 4.0]))
tensor([-0.0000, 0.6667, 4.0000])
""",
    "F.logsigmoid": """``log(sigmoid(x))`` without underflow.

>>> F.logsigmoid(eg.tensor([-100.0, 0.0]))
tensor([-100.0000,   -0.6931])
""",
    "F.softsign": """``x / (1 + |x|)``

>>> F.softsign(eg.tensor([-1.0, 3.0]))
tensor([-0.5000,  0.7500])
""",
    "F.tanhshrink": """``x - tanh(x)``

>>> F.tanhshrink(eg.tensor([1.0]))
tensor([0.2384])
""",
    "F.softmin": """:func:`softmax` of ``-x``: small values get large probabilities.

>>> F.softmin(eg.tensor([1.0, 2.0]), dim=0)
tensor([0.7311, 0.2689])
""",
    "F.softshrink": """``x`` moved towards zero by ``lambd``, zero where it would cross.

>>> F.softshrink(eg.tensor([-1.0, 0.2, 1.0]))
tensor([-0.5000,  0.0000,  0.5000])
""",
    "hardshrink": """``x`` where its absolute value is above ``lambd``, else zero.

>>> F.hardshrink(eg.tensor([-1.0, 0.2, 1.0]))
tensor([-1.,  0.,  1.])
""",
    "prelu": """``x`` above zero, a learned ``weight`` times x below.

Args:
    input: (B, C, ...)
    weight: one number, or one for each channel C

>>> F.prelu(eg.tensor([[-2.0, 2.0]]), eg.tensor([0.25]))
tensor([[-0.5000,  2.0000]])
""",
    "celu": """``max(0, x) + min(0, alpha (exp(x / alpha) - 1))``

>>> F.celu(eg.tensor([-1.0, 1.0]))
tensor([-0.6321,  1.0000])
""",
    "selu": """:func:`elu` scaled so that activations keep mean 0 and variance 1.

>>> F.selu(eg.tensor([-1.0, 1.0]))
tensor([-1.1113,  1.0507])
""",
    "F.glu": """Half of the channels gated by the other: ``a * sigmoid(b)``.

Args:
    input: extent of ``dim`` even
    dim: dimension that is cut in two

>>> F.glu(eg.tensor([1.0, 2.0, 0.0, 0.0]), dim=0)
tensor([0.5000, 1.0000])
""",
    "F.gumbel_softmax": """A sample of a categorical distribution that gradients pass through.

Args:
    logits: unnormalised log probabilities
    tau: temperature; small ones give almost one-hot samples
    hard: exactly one-hot forward, with the gradient of the soft sample
    dim: dimension of the categories

>>> F.gumbel_softmax(eg.zeros(2, 3), hard=True).sum(dim=-1)
tensor([1., 1.])
""",
    "F.dropout": """\
Elements set to zero with probability ``p``, the others scaled by ``1 / (1 - p)``.

Args:
    input: any floating-point tensor
    p: probability
    training: whether to do so at all
    inplace: whether to write into ``input``

With the same seed the mask is PyTorch's.

>>> _ = eg.manual_seed(0)
>>> F.dropout(eg.ones(4))
tensor([0., 0., 2., 0.])
""",
    "F.scaled_dot_product_attention": """Attention: ``softmax(Q K^T * scale + mask) V``.

Args:
    query: (..., L, E)
    key: (..., S, E)
    value: (..., S, Ev)
    attn_mask: boolean (true takes part) or floats to add, broadcasts to (..., L, S)
    dropout_p: probability of dropping attention weights
    is_causal: whether position i sees only positions up to i
    scale: ``1 / sqrt(E)`` by default
    enable_gqa: whether groups of query heads share a key and value head

Returns (..., L, Ev). Compiled, the (L, S) weights are never in memory at once.

>>> q = k = v = eg.ones(1, 2, 4, 8)
>>> F.scaled_dot_product_attention(q, k, v, is_causal=True).shape
evergrad.Size([1, 2, 4, 8])
""",
    "F.interpolate": """Images made larger or smaller.

Args:
    input: (B, C, W), (B, C, H, W) or (B, C, D, H, W)
    size: new extents
    scale_factor: or factors for them
    mode: ``"nearest"``, ``"linear"``, ``"bilinear"``, ``"bicubic"``, ``"trilinear"``, ``"area"`` or
        ``"nearest-exact"``
    align_corners: whether the corner pixels stay at the corners
    antialias: whether to smooth when made smaller

>>> F.interpolate(eg.tensor([[[1.0, 2.0]]]), scale_factor=2)
tensor([[[1., 1., 2., 2.]]])
""",
    "F.pad": """A border around a tensor.

Args:
    input: any tensor
    pad: (left, right) of the last dimension, then of the one before it, and so on
    mode: ``"constant"``, ``"reflect"``, ``"replicate"`` or ``"circular"``
    value: the constant, 0 by default

>>> F.pad(eg.tensor([1, 2]), (1, 2))
tensor([0, 1, 2, 0, 0])
>>> F.pad(eg.tensor([[1.0, 2.0, 3.0]]), (1, 1), mode="reflect")
tensor([[2., 1., 2., 3., 2.]])
""",
    "F.normalize": """\
Vectors along ``dim`` scaled to a ``p``-norm of 1, at least ``eps`` in the divisor.

>>> F.normalize(eg.tensor([[3.0, 4.0]]))
tensor([[0.6000, 0.8000]])
""",
    "F.embedding": """Rows of a table, one for each index.

Args:
    input: integers of any shape
    weight: table (V, C)
    padding_idx: row whose gradient stays zero
    max_norm: rows with a larger norm are scaled down in place
    norm_type: order of that norm
    scale_grad_by_freq: whether gradients are divided by how often a row occurs
    sparse: whether the gradient of ``weight`` is a sparse tensor

>>> F.embedding(eg.tensor([1, 0]), eg.tensor([[1.0, 2.0], [3.0, 4.0]]))
tensor([[3., 4.],
        [1., 2.]])
""",
    "F.grid_sample": """Pixels of ``input`` at the places of ``grid``, coordinates in [-1, 1].

Args:
    input: (B, C, H, W)
    grid: (B, H', W', 2), x before y
    mode: ``"bilinear"``, ``"nearest"`` or ``"bicubic"``
    padding_mode: what is outside: ``"zeros"``, ``"border"`` or ``"reflection"``
    align_corners: whether -1 and 1 are the centres of the corner pixels

>>> F.grid_sample(eg.ones(1, 1, 2, 2), eg.zeros(1, 1, 1, 2), align_corners=False)
tensor([[[[1.]]]])
""",
    "F.affine_grid": """The grid of an affine map, for :func:`grid_sample`.

>>> F.affine_grid(eg.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 2, 2), False).shape
evergrad.Size([1, 2, 2, 2])
""",
    "F.unfold": """Sliding blocks of images as columns: (B, C, H, W) gives (B, C k k, L).

>>> F.unfold(eg.ones(1, 1, 3, 3), kernel_size=2).shape
evergrad.Size([1, 4, 4])
""",
    "F.fold": """The sum of blocks put back to their places: the transpose of :func:`unfold`.

>>> F.fold(eg.ones(1, 4, 4), output_size=(3, 3), kernel_size=2)
tensor([[[[1., 2., 1.],
          [2., 4., 2.],
          [1., 2., 1.]]]])
""",
}
