"""Pools of :mod:`evergrad.nn.functional`."""

DOCS = {
    "F.adaptive_max_pool1d": """The largest elements of windows that cover the last dimension.

Args:
    input: (N, C, L), the first dimension may be missing
    output_size: extents of the result, ``None`` keeps one
    return_indices: give the places of the maxima as well; default ``False``

>>> F.adaptive_max_pool1d(eg.tensor([[1.0, 5.0, 2.0, 3.0]]), 2)
tensor([[5., 3.]])
""",
    "F.adaptive_max_pool1d_with_indices": """\
``adaptive_max_pool1d`` and where the largest elements stand.

Args:
    input: (N, C, L), the first dimension may be missing
    output_size: extents of the result, ``None`` keeps one
    return_indices: accepted

>>> F.adaptive_max_pool1d_with_indices(eg.tensor([[1.0, 5.0, 2.0, 3.0]]), 2)
(tensor([[5., 3.]]), tensor([[1, 3]]))
""",
    "F.max_pool1d_with_indices": """``max_pool1d`` and where the largest elements stand.

Args:
    input: (N, C, L), the first dimension may be missing
    kernel_size: extent of the window
    stride: distance of the windows; default ``kernel_size``
    padding: border at both sides; default 0
    dilation: distance of its elements; default 1
    ceil_mode: whether a window may reach beyond the end; default ``False``
    return_indices: accepted

>>> F.max_pool1d_with_indices(eg.tensor([[1.0, 5.0, 2.0, 3.0]]), 2)
(tensor([[5., 3.]]), tensor([[1, 3]]))
""",
    "F.max_unpool1d": """Zeros with each element back where ``max_pool1d`` took it from.

Args:
    input: (N, C, L), the first dimension may be missing
    indices: what ``max_pool`` gave with ``return_indices=True``
    kernel_size: extent of the window
    stride: distance of the windows; default ``kernel_size``
    padding: border of the pool; default 0
    output_size: shape of the result, where several fit

>>> values, places = F.max_pool1d(eg.tensor([[1.0, 5.0, 2.0, 3.0]]), 2, return_indices=True)
>>> F.max_unpool1d(values, places, 2).shape
evergrad.Size([1, 4])
""",
    "F.adaptive_max_pool2d": """The largest elements of windows that cover the last two dimensions.

Args:
    input: (N, C, H, W), the first dimension may be missing
    output_size: extents of the result, ``None`` keeps one
    return_indices: give the places of the maxima as well; default ``False``

>>> F.adaptive_max_pool2d(eg.arange(16.0).view(1, 4, 4), (1, 2))
tensor([[[13., 15.]]])
""",
    "F.adaptive_max_pool2d_with_indices": """\
``adaptive_max_pool2d`` and where the largest elements stand.

Args:
    input: (N, C, H, W), the first dimension may be missing
    output_size: extents of the result, ``None`` keeps one
    return_indices: accepted

>>> F.adaptive_max_pool2d_with_indices(eg.arange(16.0).view(1, 4, 4), (1, 2))
(tensor([[[13., 15.]]]), tensor([[[13, 15]]]))
""",
    "F.max_pool2d_with_indices": """``max_pool2d`` and where the largest elements stand.

Args:
    input: (N, C, H, W), the first dimension may be missing
    kernel_size: extent of the window
    stride: distance of the windows; default ``kernel_size``
    padding: border at both sides; default 0
    dilation: distance of its elements; default 1
    ceil_mode: whether a window may reach beyond the end; default ``False``
    return_indices: accepted

>>> F.max_pool2d_with_indices(eg.arange(16.0).view(1, 4, 4), 2)
(tensor([[[ 5.,  7.],
         [13., 15.]]]), tensor([[[ 5,  7],
         [13, 15]]]))
""",
    "F.max_unpool2d": """Zeros with each element back where ``max_pool2d`` took it from.

Args:
    input: (N, C, H, W), the first dimension may be missing
    indices: what ``max_pool`` gave with ``return_indices=True``
    kernel_size: extent of the window
    stride: distance of the windows; default ``kernel_size``
    padding: border of the pool; default 0
    output_size: shape of the result, where several fit

>>> values, places = F.max_pool2d(eg.arange(16.0).view(1, 4, 4), 2, return_indices=True)
>>> F.max_unpool2d(values, places, 2).shape
evergrad.Size([1, 4, 4])
""",
    "F.adaptive_max_pool3d": """\
The largest elements of windows that cover the last three dimensions.

Args:
    input: (N, C, D, H, W), the first dimension may be missing
    output_size: extents of the result, ``None`` keeps one
    return_indices: give the places of the maxima as well; default ``False``

>>> F.adaptive_max_pool3d(eg.arange(8.0).view(1, 2, 2, 2), 1)
tensor([[[[7.]]]])
""",
    "F.adaptive_max_pool3d_with_indices": """\
``adaptive_max_pool3d`` and where the largest elements stand.

Args:
    input: (N, C, D, H, W), the first dimension may be missing
    output_size: extents of the result, ``None`` keeps one
    return_indices: accepted

>>> F.adaptive_max_pool3d_with_indices(eg.arange(8.0).view(1, 2, 2, 2), 1)
(tensor([[[[7.]]]]), tensor([[[[7]]]]))
""",
    "F.max_pool3d_with_indices": """``max_pool3d`` and where the largest elements stand.

Args:
    input: (N, C, D, H, W), the first dimension may be missing
    kernel_size: extent of the window
    stride: distance of the windows; default ``kernel_size``
    padding: border at both sides; default 0
    dilation: distance of its elements; default 1
    ceil_mode: whether a window may reach beyond the end; default ``False``
    return_indices: accepted

>>> F.max_pool3d_with_indices(eg.arange(8.0).view(1, 2, 2, 2), 2)
(tensor([[[[7.]]]]), tensor([[[[7]]]]))
""",
    "F.max_unpool3d": """Zeros with each element back where ``max_pool3d`` took it from.

Args:
    input: (N, C, D, H, W), the first dimension may be missing
    indices: what ``max_pool`` gave with ``return_indices=True``
    kernel_size: extent of the window
    stride: distance of the windows; default ``kernel_size``
    padding: border of the pool; default 0
    output_size: shape of the result, where several fit

>>> values, places = F.max_pool3d(eg.arange(8.0).view(1, 2, 2, 2), 2, return_indices=True)
>>> F.max_unpool3d(values, places, 2).shape
evergrad.Size([1, 2, 2, 2])
""",
    "F.adaptive_avg_pool3d": """The means of windows that cover the last three dimensions.

Args:
    input: (N, C, D, H, W), the first dimension may be missing
    output_size: extents of the result, ``None`` keeps one

>>> F.adaptive_avg_pool3d(eg.ones(1, 2, 4, 4, 4), (1, 2, None)).shape
evergrad.Size([1, 2, 1, 2, 4])
""",
    "F.fractional_max_pool2d": """The largest numbers of windows at random places, in 2 dimensions.

Args:
    input: (N, C, *)
    kernel_size: extent of each window
    output_size: extents of the result, or
    output_ratio: extents of the result as shares of the input's
    return_indices: give the places of the maxima as well; default ``False``

>>> F.fractional_max_pool2d(eg.ones(1, 1, 6, 6), 2, output_size=3).shape
evergrad.Size([1, 1, 3, 3])
""",
    "F.fractional_max_pool2d_with_indices": """\
``fractional_max_pool2d``, and which element of its plane each number was.

Args:
    input: (N, C, *)
    kernel_size: extent of each window
    output_size: extents of the result, or
    output_ratio: extents of the result as shares of the input's
    return_indices: accepted

>>> values, places = F.fractional_max_pool2d_with_indices(eg.ones(1, 1, 6, 6), 2, output_ratio=0.5)
>>> values.shape, places.shape
(evergrad.Size([1, 1, 3, 3]), evergrad.Size([1, 1, 3, 3]))
""",
    "F.fractional_max_pool3d": """The largest numbers of windows at random places, in 3 dimensions.

Args:
    input: (N, C, *)
    kernel_size: extent of each window
    output_size: extents of the result, or
    output_ratio: extents of the result as shares of the input's
    return_indices: give the places of the maxima as well; default ``False``

>>> F.fractional_max_pool3d(eg.ones(1, 1, 6, 6, 6), 2, output_size=3).shape
evergrad.Size([1, 1, 3, 3, 3])
""",
    "F.fractional_max_pool3d_with_indices": """\
``fractional_max_pool3d``, and which element of its plane each number was.

Args:
    input: (N, C, *)
    kernel_size: extent of each window
    output_size: extents of the result, or
    output_ratio: extents of the result as shares of the input's
    return_indices: accepted

>>> x = eg.ones(1, 1, 6, 6, 6)
>>> values, places = F.fractional_max_pool3d_with_indices(x, 2, output_ratio=0.5)
>>> values.shape, places.shape
(evergrad.Size([1, 1, 3, 3, 3]), evergrad.Size([1, 1, 3, 3, 3]))
""",
}
