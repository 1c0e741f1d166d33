"""Convolution, pooling and normalisation, as functions."""

_CONV = """
    bias: (C_out), or none
    stride: one number, or one for each dimension
    padding: zeros at both sides; ``"same"`` keeps the extents, ``"valid"`` is none
    dilation: distance of the kernel's elements
    groups: parts of the channels that do not see each other
"""
_POOL = """
    kernel_size: extent of the window
    stride: distance of the windows, ``kernel_size`` by default
    padding: border at both sides
"""

DOCS = {
    "conv1d": """Convolution (cross-correlation) of signals.

Args:
    input: (B, C_in, L), or without B
    weight: (C_out, C_in / groups, K)
"""
    + _CONV
    + """
>>> F.conv1d(eg.tensor([[[1.0, 2.0, 3.0]]]), eg.tensor([[[1.0, -1.0]]]))
tensor([[[-1., -1.]]])
""",
    "conv2d": """Convolution (cross-correlation) of images.

Args:
    input: (B, C_in, H, W), or without B
    weight: (C_out, C_in / groups, K_h, K_w)
"""
    + _CONV
    + """
>>> F.conv2d(eg.ones(1, 3, 8, 8), eg.ones(6, 3, 3, 3), padding=1, stride=2).shape
evergrad.Size([1, 6, 4, 4])
""",
    "conv3d": """Convolution (cross-correlation) of volumes.

Args:
    input: (B, C_in, D, H, W), or without B
    weight: (C_out, C_in / groups, K_d, K_h, K_w)
"""
    + _CONV
    + """
>>> F.conv3d(eg.ones(1, 1, 4, 4, 4), eg.ones(2, 1, 3, 3, 3)).shape
evergrad.Size([1, 2, 2, 2, 2])
""",
    "conv_transpose1d": """The transpose of :func:`conv1d`: it makes signals longer.

>>> F.conv_transpose1d(eg.ones(1, 1, 3), eg.ones(1, 1, 2), stride=2)
tensor([[[1., 1., 1., 1., 1., 1.]]])
""",
    "conv_transpose2d": """The transpose of :func:`conv2d`: it makes images larger.

Args:
    input: (B, C_in, H, W)
    weight: (C_in, C_out / groups, K_h, K_w)
    output_padding: extent added at one side of the result

>>> F.conv_transpose2d(eg.ones(1, 2, 4, 4), eg.ones(2, 3, 2, 2), stride=2).shape
evergrad.Size([1, 3, 8, 8])
""",
    "conv_transpose3d": """The transpose of :func:`conv3d`: it makes volumes larger.

>>> F.conv_transpose3d(eg.ones(1, 1, 2, 2, 2), eg.ones(1, 1, 2, 2, 2), stride=2).shape
evergrad.Size([1, 1, 4, 4, 4])
""",
    "max_pool1d": """The largest element of each window.

Args:
    input: (B, C, L), or without B
"""
    + _POOL
    + """    dilation: distance of the window's elements
    ceil_mode: whether windows may begin inside and end outside
    return_indices: also where each was, for ``max_unpool1d``

>>> F.max_pool1d(eg.tensor([[[1.0, 3.0, 2.0, 4.0]]]), 2)
tensor([[[3., 4.]]])
""",
    "max_pool2d": """The largest element of each window of an image.

Args:
    input: (B, C, H, W), or without B
"""
    + _POOL
    + """    dilation: distance of the window's elements
    ceil_mode: whether windows may begin inside and end outside
    return_indices: also where each was, for ``max_unpool2d``

>>> F.max_pool2d(eg.arange(16.0).reshape(1, 1, 4, 4), 2)
tensor([[[[ 5.,  7.],
          [13., 15.]]]])
""",
    "max_pool3d": """The largest element of each window of a volume.

>>> F.max_pool3d(eg.ones(1, 1, 4, 4, 4), 2).shape
evergrad.Size([1, 1, 2, 2, 2])
""",
    "avg_pool1d": """The mean of each window.

Args:
    input: (B, C, L), or without B
"""
    + _POOL
    + """    ceil_mode: whether windows may begin inside and end outside
    count_include_pad: whether the border counts in the divisor

>>> F.avg_pool1d(eg.tensor([[[1.0, 3.0, 2.0, 4.0]]]), 2)
tensor([[[2., 3.]]])
""",
    "F.avg_pool2d": """The mean of each window of an image.

Args:
    input: (B, C, H, W), or without B
"""
    + _POOL
    + """    ceil_mode: whether windows may begin inside and end outside
    count_include_pad: whether the border counts in the divisor
    divisor_override: divisor in place of the number of elements

>>> F.avg_pool2d(eg.arange(16.0).reshape(1, 1, 4, 4), 2)
tensor([[[[ 2.5000,  4.5000],
          [10.5000, 12.5000]]]])
""",
    "F.adaptive_avg_pool2d": """Means over as many windows as the result has pixels.

Args:
    input: (B, C, H, W), or without B
    output_size: (H', W'), one number for both, or ``None`` for an extent that stays

>>> F.adaptive_avg_pool2d(eg.arange(16.0).reshape(1, 1, 4, 4), 1)
tensor([[[[7.5000]]]])
""",
    "adaptive_avg_pool1d": """Means over as many windows as the result has elements.

>>> F.adaptive_avg_pool1d(eg.tensor([[[1.0, 3.0, 2.0, 4.0]]]), 2)
tensor([[[2., 3.]]])
""",
    "layer_norm": """Each example scaled to mean 0 and variance 1 over its last dimensions.

Args:
    input: (..., *normalized_shape)
    normalized_shape: extents of the last dimensions
    weight: factor of that shape, or none
    bias: summand of that shape, or none
    eps: added to the variance

>>> F.layer_norm(eg.tensor([[1.0, 2.0, 3.0]]), (3,))
tensor([[-1.2247,  0.0000,  1.2247]])
""",
    "rms_norm": """Each example divided by the root of its mean square over its last dimensions.

Args:
    input: (..., *normalized_shape)
    normalized_shape: extents of the last dimensions
    weight: factor of that shape, or none
    eps: added to the mean square; the resolution of the type by default

>>> F.rms_norm(eg.tensor([[3.0, 4.0]]), (2,))
tensor([[0.8485, 1.1314]])
""",
    "group_norm": """Groups of channels scaled to mean 0 and variance 1.

Args:
    input: (B, C, ...)
    num_groups: how many groups the channels form
    weight: (C), or none
    bias: (C), or none
    eps: added to the variance

>>> F.group_norm(eg.ones(2, 4, 3), 2).shape
evergrad.Size([2, 4, 3])
""",
    "F.batch_norm": """\
Channels scaled to mean 0 and variance 1, over the batch or by running statistics.

Args:
    input: (B, C, ...)
    running_mean: (C), updated in place while training
    running_var: (C), updated in place while training
    weight: (C), or none
    bias: (C), or none
    training: whether the statistics are those of the batch
    momentum: weight of the batch in the running statistics
    eps: added to the variance

>>> F.batch_norm(eg.tensor([[1.0], [3.0]]), None, None, training=True)
tensor([[-1.0000],
        [ 1.0000]])
""",
    "F.instance_norm": """Channels of each example scaled to mean 0 and variance 1.

>>> F.instance_norm(eg.ones(2, 3, 4)).shape
evergrad.Size([2, 3, 4])
""",
    "F.local_response_norm": """Each channel divided by a power of its neighbours' mean square.

>>> F.local_response_norm(eg.ones(1, 4, 2), 2).shape
evergrad.Size([1, 4, 2])
""",
}
