"""The docstrings of layers: what they compute, arguments, shapes, an example that runs."""

_CONV = """
Args:
    in_channels: channels of the input
    out_channels: channels of the output
    kernel_size: extent of the kernel, one number or one for each dimension
    stride: distance of its places
    padding: border at both sides; ``"same"`` keeps the extents, ``"valid"`` is none
    dilation: distance of the kernel's elements
    groups: parts of the channels that do not see each other
    bias: whether to add a number to each output channel
    padding_mode: ``"zeros"``, ``"reflect"``, ``"replicate"`` or ``"circular"``

Parameters: ``weight`` (out_channels, in_channels / groups, *kernel_size) and ``bias``.
"""
_CONV_TRANSPOSE = """
Args:
    in_channels: channels of the input
    out_channels: channels of the output
    kernel_size: extent of the kernel, one number or one for each dimension
    stride: by how much the output is finer
    padding: what is cut off at both sides
    output_padding: extent added at one side
    groups: parts of the channels that do not see each other
    bias: whether to add a number to each output channel
    dilation: distance of the kernel's elements

Parameters: ``weight`` (in_channels, out_channels / groups, *kernel_size) and ``bias``.
"""
_POOL = """
Args:
    kernel_size: extent of the window, one number or one for each dimension
    stride: distance of the windows, ``kernel_size`` by default
    padding: border at both sides
"""
_BATCH = """
Args:
    num_features: channels C
    eps: added to the variance
    momentum: weight of the batch in the running statistics; ``None`` for their plain mean
    affine: whether to learn a factor and a summand for each channel
    track_running_stats: whether to keep running statistics, which ``eval()`` then uses
    bias: whether to learn the summand
"""
_REDUCTION = """    reduction: ``"mean"``, ``"sum"`` or ``"none"``
"""

DOCS = {
    "Module": """The base of all layers and models.

Make parameters and submodules in ``__init__`` (after ``super().__init__()``), compute in
``forward``; call the module itself, which runs hooks as well. ``parameters()``, ``state_dict()``,
``to()``, ``train()`` and ``eval()`` reach everything inside.

>>> class Net(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.hidden = nn.Linear(4, 8)
...         self.out = nn.Linear(8, 2)
...
...     def forward(self, x):
...         return self.out(self.hidden(x).relu())
>>> Net()(eg.ones(3, 4)).shape
evergrad.Size([3, 2])
>>> sum(p.numel() for p in Net().parameters())
58
""",
    "Sequential": """Modules called one after the other, each with what the one before returned.

Args:
    args: modules, or one ordered dictionary of named ones

>>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
>>> model(eg.ones(3, 4)).shape
evergrad.Size([3, 2])
""",
    "ModuleList": """A list whose modules are submodules: registered, saved and moved.

>>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
>>> len(list(layers.parameters()))
6
""",
    "ModuleDict": """A dictionary whose modules are submodules.

>>> heads = nn.ModuleDict({"a": nn.Linear(2, 1), "b": nn.Linear(2, 3)})
>>> heads["b"](eg.ones(2)).shape
evergrad.Size([3])
""",
    "ParameterList": """A list whose tensors are parameters.

>>> len(nn.ParameterList([eg.ones(2), eg.ones(3)]))
2
""",
    "ParameterDict": """A dictionary whose tensors are parameters.

>>> nn.ParameterDict({"scale": eg.ones(2)})["scale"].requires_grad
True
""",
    "Parameter": """A tensor that is a parameter of the module it is assigned to.

Args:
    data: its values
    requires_grad: whether it is learned

>>> nn.Parameter(eg.ones(2)).requires_grad
True
""",
    "Linear": """``x @ weight.T + bias``: a fully connected layer.

Args:
    in_features: extent of the last dimension of the input
    out_features: extent of the last dimension of the output
    bias: whether to add one

Input (..., in_features), output (..., out_features). Parameters: ``weight`` (out_features,
in_features) and ``bias``, uniform in ``±1 / sqrt(in_features)`` at first.

>>> nn.Linear(4, 2)(eg.ones(3, 4)).shape
evergrad.Size([3, 2])
""",
    "Bilinear": """``x1^T W x2 + b``: features that depend on two inputs.

>>> nn.Bilinear(3, 4, 5)(eg.ones(2, 3), eg.ones(2, 4)).shape
evergrad.Size([2, 5])
""",
    "Identity": """Returns its input, whatever it was made with.

>>> nn.Identity()(eg.ones(2))
tensor([1., 1.])
""",
    "Embedding": """A table of vectors, one for each index.

Args:
    num_embeddings: rows V of the table
    embedding_dim: extent C of each
    padding_idx: row that is zero at first and is not learned
    max_norm: rows with a larger norm are scaled down when looked up
    norm_type: order of that norm
    scale_grad_by_freq: whether gradients are divided by how often a row occurs in the batch
    sparse: whether the gradient is a sparse tensor

Input: integers of any shape (*); output (*, C).

>>> nn.Embedding(10, 4)(eg.tensor([[1, 2, 9]])).shape
evergrad.Size([1, 3, 4])
""",
    "EmbeddingBag": """The sum, mean or maximum of the rows of a table for each bag of indices.

>>> nn.EmbeddingBag(10, 4, mode="sum")(eg.tensor([1, 2, 3]), eg.tensor([0, 2])).shape
evergrad.Size([2, 4])
""",
    "Conv1d": "Convolution of signals: (B, C_in, L) gives (B, C_out, L').\n"
    + _CONV
    + """
>>> nn.Conv1d(3, 6, 5, padding=2)(eg.ones(2, 3, 16)).shape
evergrad.Size([2, 6, 16])
""",
    "Conv2d": "Convolution of images: (B, C_in, H, W) gives (B, C_out, H', W').\n"
    + _CONV
    + """
>>> nn.Conv2d(3, 6, 3, stride=2, padding=1)(eg.ones(2, 3, 8, 8)).shape
evergrad.Size([2, 6, 4, 4])
""",
    "Conv3d": "Convolution of volumes: (B, C_in, D, H, W).\n"
    + _CONV
    + """
>>> nn.Conv3d(1, 2, 3)(eg.ones(1, 1, 4, 4, 4)).shape
evergrad.Size([1, 2, 2, 2, 2])
""",
    "ConvTranspose1d": "The transpose of :class:`Conv1d`: longer signals.\n"
    + _CONV_TRANSPOSE
    + """
>>> nn.ConvTranspose1d(3, 6, 2, stride=2)(eg.ones(1, 3, 8)).shape
evergrad.Size([1, 6, 16])
""",
    "ConvTranspose2d": "The transpose of :class:`Conv2d`: larger images.\n"
    + _CONV_TRANSPOSE
    + """
>>> nn.ConvTranspose2d(3, 6, 2, stride=2)(eg.ones(1, 3, 8, 8)).shape
evergrad.Size([1, 6, 16, 16])
""",
    "ConvTranspose3d": "The transpose of :class:`Conv3d`: larger volumes.\n"
    + _CONV_TRANSPOSE
    + """
>>> nn.ConvTranspose3d(1, 2, 2, stride=2)(eg.ones(1, 1, 2, 2, 2)).shape
evergrad.Size([1, 2, 4, 4, 4])
""",
    "MaxPool1d": "The largest element of each window of (B, C, L).\n"
    + _POOL
    + """
>>> nn.MaxPool1d(2)(eg.tensor([[[1.0, 3.0, 2.0, 4.0]]]))
tensor([[[3., 4.]]])
""",
    "MaxPool2d": "The largest element of each window of (B, C, H, W).\n"
    + _POOL
    + """
>>> nn.MaxPool2d(2)(eg.arange(16.0).reshape(1, 1, 4, 4))
tensor([[[[ 5.,  7.],
          [13., 15.]]]])
""",
    "MaxPool3d": "The largest element of each window of (B, C, D, H, W).\n"
    + _POOL
    + """
>>> nn.MaxPool3d(2)(eg.ones(1, 1, 4, 4, 4)).shape
evergrad.Size([1, 1, 2, 2, 2])
""",
    "AvgPool1d": "The mean of each window of (B, C, L).\n"
    + _POOL
    + """
>>> nn.AvgPool1d(2)(eg.tensor([[[1.0, 3.0, 2.0, 4.0]]]))
tensor([[[2., 3.]]])
""",
    "AvgPool2d": "The mean of each window of (B, C, H, W).\n"
    + _POOL
    + """
>>> nn.AvgPool2d(2)(eg.arange(16.0).reshape(1, 1, 4, 4))
tensor([[[[ 2.5000,  4.5000],
          [10.5000, 12.5000]]]])
""",
    "AvgPool3d": "The mean of each window of (B, C, D, H, W).\n"
    + _POOL
    + """
>>> nn.AvgPool3d(2)(eg.ones(1, 1, 4, 4, 4)).shape
evergrad.Size([1, 1, 2, 2, 2])
""",
    "AdaptiveAvgPool1d": """Means over as many windows as the output has elements.

>>> nn.AdaptiveAvgPool1d(2)(eg.tensor([[[1.0, 3.0, 2.0, 4.0]]]))
tensor([[[2., 3.]]])
""",
    "AdaptiveAvgPool2d": """Means over as many windows as the output has pixels.

Args:
    output_size: (H', W'), one number for both, or ``None`` for an extent that stays

>>> nn.AdaptiveAvgPool2d(1)(eg.arange(16.0).reshape(1, 1, 4, 4))
tensor([[[[7.5000]]]])
""",
    "AdaptiveMaxPool2d": """Maxima over as many windows as the output has pixels.

>>> nn.AdaptiveMaxPool2d(1)(eg.arange(16.0).reshape(1, 1, 4, 4))
tensor([[[[15.]]]])
""",
    "BatchNorm1d": "Each channel of (B, C) or (B, C, L) normalised over the batch.\n"
    + _BATCH
    + """
>>> nn.BatchNorm1d(1, affine=False)(eg.tensor([[1.0], [3.0]]))
tensor([[-1.0000],
        [ 1.0000]])
""",
    "BatchNorm2d": "Each channel of (B, C, H, W) normalised over the batch.\n"
    + _BATCH
    + """
>>> nn.BatchNorm2d(3)(eg.ones(2, 3, 4, 4)).shape
evergrad.Size([2, 3, 4, 4])
""",
    "BatchNorm3d": "Each channel of (B, C, D, H, W) normalised over the batch.\n"
    + _BATCH
    + """
>>> nn.BatchNorm3d(3)(eg.ones(2, 3, 2, 2, 2)).shape
evergrad.Size([2, 3, 2, 2, 2])
""",
    "LayerNorm": """Each example normalised over its last dimensions.

Args:
    normalized_shape: extents of these dimensions
    eps: added to the variance
    elementwise_affine: whether to learn a factor and a summand
    bias: whether to learn the summand

>>> nn.LayerNorm(3)(eg.tensor([[1.0, 2.0, 3.0]])).detach()
tensor([[-1.2247,  0.0000,  1.2247]])
""",
    "RMSNorm": """The last dimensions divided by their root mean square.

Args:
    normalized_shape: extents of these dimensions
    eps: added to the mean square; the resolution of the type by default
    elementwise_affine: whether to learn a factor

>>> nn.RMSNorm(2)(eg.tensor([[3.0, 4.0]]))
tensor([[0.8485, 1.1314]], grad_fn=<MulBackward0>)
""",
    "GroupNorm": """Channels normalised in groups, for each example.

Args:
    num_groups: how many groups the channels form
    num_channels: channels C
    eps: added to the variance
    affine: whether to learn a factor and a summand for each channel

>>> nn.GroupNorm(2, 4)(eg.ones(2, 4, 3)).shape
evergrad.Size([2, 4, 3])
""",
    "InstanceNorm1d": """Each channel of each example (C, L) normalised by itself.

>>> nn.InstanceNorm1d(3)(eg.ones(2, 3, 4)).shape
evergrad.Size([2, 3, 4])
""",
    "InstanceNorm2d": """Each channel of each example (C, H, W) normalised by itself.

>>> nn.InstanceNorm2d(3)(eg.ones(2, 3, 4, 4)).shape
evergrad.Size([2, 3, 4, 4])
""",
    "Dropout": """Elements set to zero with probability ``p`` while training, others scaled up.

Args:
    p: probability
    inplace: whether to write into the input

After ``eval()`` it returns its input.

>>> nn.Dropout(0.5).eval()(eg.ones(3))
tensor([1., 1., 1.])
""",
    "Dropout2d": """Whole channels of (B, C, H, W) set to zero with probability ``p``.

>>> nn.Dropout2d(0.5).eval()(eg.ones(1, 2, 1, 1)).shape
evergrad.Size([1, 2, 1, 1])
""",
    "ReLU": """``max(x, 0)``

>>> nn.ReLU()(eg.tensor([-1.0, 2.0]))
tensor([0., 2.])
""",
    "LeakyReLU": """``x`` above zero, ``negative_slope * x`` below.

>>> nn.LeakyReLU(0.1)(eg.tensor([-1.0, 2.0]))
tensor([-0.1000,  2.0000])
""",
    "PReLU": """A rectifier whose slope below zero is learned.

Args:
    num_parameters: 1, or one for each channel
    init: the slope at first

>>> nn.PReLU()(eg.tensor([-2.0, 2.0])).detach()
tensor([-0.5000,  2.0000])
""",
    "ELU": """``x`` above zero, ``alpha (exp(x) - 1)`` below.

>>> nn.ELU()(eg.tensor([-1.0, 1.0]))
tensor([-0.6321,  1.0000])
""",
    "GELU": """``x`` times the normal distribution's probability of being below x.

>>> nn.GELU()(eg.tensor([-1.0, 1.0]))
tensor([-0.1587,  0.8413])
""",
    "SiLU": """``x * sigmoid(x)``

>>> nn.SiLU()(eg.tensor([-1.0, 1.0]))
tensor([-0.2689,  0.7311])
""",
    "Sigmoid": """``1 / (1 + exp(-x))``

>>> nn.Sigmoid()(eg.tensor([0.0, 1.0]))
tensor([0.5000, 0.7311])
""",
    "Tanh": """The hyperbolic tangent.

>>> nn.Tanh()(eg.tensor([0.0, 1.0]))
tensor([0.0000, 0.7616])
""",
    "Softplus": """``log(1 + exp(beta x)) / beta``: a smooth rectifier.

>>> nn.Softplus()(eg.tensor([0.0, 1.0]))
tensor([0.6931, 1.3133])
""",
    "Softmax": """Probabilities along a dimension.

Args:
    dim: the dimension along which the result sums to 1

>>> nn.Softmax(dim=0)(eg.tensor([1.0, 2.0, 3.0]))
tensor([0.0900, 0.2447, 0.6652])
""",
    "LogSoftmax": """The logarithm of softmax, exact where it underflows.

>>> nn.LogSoftmax(dim=0)(eg.tensor([1.0, 2.0]))
tensor([-1.3133, -0.3133])
""",
    "Flatten": """Dimensions put together; by default all but the batch.

>>> nn.Flatten()(eg.ones(2, 3, 4)).shape
evergrad.Size([2, 12])
""",
    "Unflatten": """One dimension split into several.

>>> nn.Unflatten(1, (3, 4))(eg.ones(2, 12)).shape
evergrad.Size([2, 3, 4])
""",
    "Upsample": """Larger images: see :func:`functional.interpolate`.

>>> nn.Upsample(scale_factor=2)(eg.tensor([[[1.0, 2.0]]]))
tensor([[[1., 1., 2., 2.]]])
""",
    "PixelShuffle": """Channels as finer pixels: (B, C r^2, H, W) gives (B, C, H r, W r).

>>> nn.PixelShuffle(2)(eg.ones(1, 8, 2, 2)).shape
evergrad.Size([1, 2, 4, 4])
""",
    "ZeroPad2d": """Zeros around the last two dimensions.

Args:
    padding: one number, or (left, right, top, bottom)

>>> nn.ZeroPad2d(1)(eg.ones(1, 1, 2, 2)).shape
evergrad.Size([1, 1, 4, 4])
""",
    "MultiheadAttention": """Attention in several heads.

Args:
    embed_dim: features of queries and output
    num_heads: heads; each has ``embed_dim / num_heads`` features
    dropout: probability of dropping attention weights while training
    bias: whether the projections have one
    kdim: features of keys, ``embed_dim`` by default
    vdim: features of values, ``embed_dim`` by default
    batch_first: (B, T, C) in place of (T, B, C)

``attention(query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None)`` returns
the output and the weights, averaged over the heads (``None`` unless ``need_weights``).

>>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
>>> x = eg.ones(1, 5, 8)
>>> output, weights = attention(x, x, x)
>>> output.shape, weights.shape
(evergrad.Size([1, 5, 8]), evergrad.Size([1, 5, 5]))
""",
    "TransformerEncoderLayer": """\
Self-attention and a feed-forward block, each with residual and norm.

Args:
    d_model: features
    nhead: heads of the attention
    dim_feedforward: features inside the block
    dropout: probability while training
    activation: ``"relu"``, ``"gelu"`` or a function
    layer_norm_eps: of the norms
    batch_first: (B, T, C) in place of (T, B, C)
    norm_first: whether norms come before the blocks
    bias: whether linear layers and norms have one

>>> nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(eg.ones(1, 5, 8)).shape
evergrad.Size([1, 5, 8])
""",
    "TransformerEncoder": """Several encoder layers, each a copy of the given one.

>>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
>>> nn.TransformerEncoder(layer, 2)(eg.ones(1, 5, 8)).shape
evergrad.Size([1, 5, 8])
""",
    "LSTMCell": """One step of :class:`LSTM`: (B, input_size) and (h, c) give (h', c').

>>> h, c = nn.LSTMCell(4, 8)(eg.ones(2, 4))
>>> h.shape
evergrad.Size([2, 8])
""",
    "GRUCell": """One step of :class:`GRU`: (B, input_size) and h give h'.

>>> nn.GRUCell(4, 8)(eg.ones(2, 4)).shape
evergrad.Size([2, 8])
""",
    "CrossEntropyLoss": """The classification loss: ``-log softmax(input)[target]``.

Args:
    weight: (C), what each class counts
    ignore_index: class that does not count
    label_smoothing: share of the target that is spread over all classes
"""
    + _REDUCTION
    + """
Input: scores (B, C) or (B, C, ...); target: classes (B) or (B, ...), or probabilities.

>>> nn.CrossEntropyLoss()(eg.tensor([[2.0, 0.0], [0.0, 1.0]]), eg.tensor([0, 1]))
tensor(0.2201)
""",
    "NLLLoss": """The negative of the log probability of the target class.

Args:
    weight: (C), what each class counts
    ignore_index: class that does not count
"""
    + _REDUCTION
    + """
>>> nn.NLLLoss()(eg.zeros(1, 2).log_softmax(1), eg.tensor([0]))
tensor(0.6931)
""",
    "MSELoss": "The mean of squared differences.\n\nArgs:\n"
    + _REDUCTION
    + """
>>> nn.MSELoss()(eg.tensor([1.0, 2.0]), eg.tensor([1.0, 4.0]))
tensor(2.)
""",
    "L1Loss": "The mean of absolute differences.\n\nArgs:\n"
    + _REDUCTION
    + """
>>> nn.L1Loss()(eg.tensor([1.0, 2.0]), eg.tensor([1.0, 4.0]))
tensor(1.)
""",
    "SmoothL1Loss": """Squared for differences below ``beta``, absolute for larger ones.

>>> nn.SmoothL1Loss()(eg.tensor([0.0, 0.0]), eg.tensor([0.5, 3.0]))
tensor(1.3125)
""",
    "HuberLoss": """Squared for differences below ``delta``, linear for larger ones.

>>> nn.HuberLoss()(eg.tensor([0.0, 0.0]), eg.tensor([0.5, 3.0]))
tensor(1.3125)
""",
    "BCELoss": """Binary cross entropy of probabilities; :class:`BCEWithLogitsLoss` takes scores.

>>> nn.BCELoss()(eg.tensor([0.9, 0.1]), eg.tensor([1.0, 0.0]))
tensor(0.1054)
""",
    "BCEWithLogitsLoss": """Sigmoid and binary cross entropy in one step, without overflow.

Args:
    weight: what each element counts
    pos_weight: what positive targets count
"""
    + _REDUCTION
    + """
>>> nn.BCEWithLogitsLoss()(eg.tensor([0.0, 100.0]), eg.tensor([1.0, 1.0]))
tensor(0.3466)
""",
    "KLDivLoss": """The Kullback-Leibler divergence from log probabilities to a distribution.

>>> half = eg.tensor([[0.5, 0.5]])
>>> nn.KLDivLoss(reduction="batchmean")(half.log(), half)
tensor(0.)
""",
    "CosineSimilarity": """The cosine of the angle between vectors along ``dim``.

>>> nn.CosineSimilarity()(eg.tensor([[1.0, 0.0]]), eg.tensor([[1.0, 1.0]]))
tensor([0.7071])
""",
    "TripletMarginLoss": """``max(0, |a - p| - |a - n| + margin)``

>>> nn.TripletMarginLoss()(eg.zeros(1, 2), eg.zeros(1, 2), eg.zeros(1, 2))
tensor(1.)
""",
    "CTCLoss": """The likelihood of a label sequence over all its alignments.

>>> scores = eg.zeros(4, 1, 3).log_softmax(2)
>>> nn.CTCLoss()(scores, eg.tensor([[1, 2]]), eg.tensor([4]), eg.tensor([2]))
tensor(0.8432)
""",
    "LazyLinear": """A linear layer whose ``in_features`` follow from the first input.

>>> layer = nn.LazyLinear(2)
>>> layer(eg.ones(3, 4)).shape, layer.in_features
(evergrad.Size([3, 2]), 4)
""",
}
