"""Functions along dimensions: sums, extremes, statistics, scans, order."""

DOCS = {
    "sum": """The sum of all elements, or along dimensions.

Args:
    input: any tensor
    dim: dimension or dimensions to sum over; all of them by default
    keepdim: whether they stay, with extent 1
    dtype: type to convert to first; integers and booleans are summed in int64

Floats are summed in blocks, so the error grows with the logarithm of the count, and the result does
not depend on the number of threads. ``axis`` and ``keepdims`` are accepted too.

>>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> x.sum()
tensor(10.)
>>> x.sum(dim=0)
tensor([4., 6.])
>>> x.sum(dim=1, keepdim=True)
tensor([[3.],
        [7.]])
""",
    "nansum": """The sum of the elements that are not NaN.

Args:
    input: any real tensor
    dim: dimension or dimensions to sum over; all of them by default
    keepdim: whether they stay, with extent 1
    dtype: type to convert to first

>>> eg.nansum(eg.tensor([1.0, eg.nan, 2.0]))
tensor(3.)
""",
    "mean": """The arithmetic mean of all elements, or along dimensions.

Args:
    input: floating-point or complex tensor
    dim: dimension or dimensions; all of them by default
    keepdim: whether they stay, with extent 1
    dtype: type to convert to first; integers need one

>>> x = eg.tensor([[1.0, 2.0], [3.0, 4.0]])
>>> x.mean()
tensor(2.5000)
>>> x.mean(dim=0)
tensor([2., 3.])
""",
    "nanmean": """The mean of the elements that are not NaN.

>>> eg.nanmean(eg.tensor([1.0, eg.nan, 3.0]))
tensor(2.)
""",
    "prod": """The product of all elements, or along a dimension.

Args:
    input: any tensor
    dim: dimension; all of them by default
    keepdim: whether it stays, with extent 1
    dtype: type to convert to first; integers and booleans are multiplied in int64

>>> eg.prod(eg.tensor([[1, 2], [3, 4]]), dim=1)
tensor([ 2, 12])
""",
    "max": """The largest element; with ``dim`` the largest along it and where; with a second tensor
the larger of each two.

Args:
    input: any real tensor
    dim: dimension to reduce; a tensor in its place is taken as ``other``
    keepdim: whether the dimension stays, with extent 1
    other: tensor to compare with, element by element: see :func:`maximum`

Returns a tensor, or with ``dim`` a named tuple ``(values, indices)``. NaN is larger than any
number. With ``dim`` the gradient goes to the chosen element; without, elements that are equally
large share it.

>>> x = eg.tensor([[1.0, 5.0], [7.0, 2.0]])
>>> x.max()
tensor(7.)
>>> values, indices = x.max(dim=1)
>>> values, indices
(tensor([5., 7.]), tensor([1, 0]))
""",
    "min": """\
The smallest element; with ``dim`` the smallest along it and where; with a second tensor
the smaller of each two.

Args:
    input: any real tensor
    dim: dimension to reduce; a tensor in its place is taken as ``other``
    keepdim: whether the dimension stays, with extent 1
    other: tensor to compare with, element by element: see :func:`minimum`

Returns a tensor, or with ``dim`` a named tuple ``(values, indices)``.

>>> x = eg.tensor([[1.0, 5.0], [7.0, 2.0]])
>>> x.min(dim=0).values
tensor([1., 2.])
""",
    "amax": """The largest element along dimensions; equal ones share the gradient.

Args:
    input: any real tensor
    dim: dimension or dimensions; all of them by default
    keepdim: whether they stay, with extent 1

>>> eg.amax(eg.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1)
tensor([5., 7.])
""",
    "amin": """The smallest element along dimensions; equal ones share the gradient.

Args:
    input: any real tensor
    dim: dimension or dimensions; all of them by default
    keepdim: whether they stay, with extent 1

>>> eg.amin(eg.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1)
tensor([1., 2.])
""",
    "aminmax": """The smallest and the largest element in one pass: a named tuple ``(min, max)``.

>>> low, high = eg.aminmax(eg.tensor([3.0, 1.0, 2.0]))
>>> low, high
(tensor(1.), tensor(3.))
""",
    "argmax": """Where the largest element is.

Args:
    input: any real tensor
    dim: dimension to look along; ``None`` gives the place in the flattened tensor
    keepdim: whether the dimension stays, with extent 1

Of equal ones the first. The result is int64 and has no gradient.

>>> eg.argmax(eg.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1)
tensor([1, 0])
""",
    "argmin": """Where the smallest element is.

Args:
    input: any real tensor
    dim: dimension to look along; ``None`` gives the place in the flattened tensor
    keepdim: whether the dimension stays, with extent 1

>>> eg.argmin(eg.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1)
tensor([0, 1])
""",
    "all": """Whether all elements are not zero, of all or along a dimension.

>>> eg.all(eg.tensor([[True, False], [True, True]]), dim=1)
tensor([False,  True])
""",
    "any": """Whether some element is not zero, of all or along a dimension.

>>> eg.any(eg.tensor([[True, False], [False, False]]), dim=1)
tensor([ True, False])
""",
    "count_nonzero": """How many elements are not zero.

>>> eg.count_nonzero(eg.tensor([[0, 1], [2, 3]]), dim=1)
tensor([1, 2])
""",
    "var": """The variance, of all elements or along dimensions.

Args:
    input: floating-point or complex tensor
    dim: dimension or dimensions; all of them by default
    unbiased: whether to divide by ``N - 1`` in place of ``N``
    keepdim: whether they stay, with extent 1
    correction: the divisor is ``N - correction``; 1 by default

Computed as the mean squared deviation from the mean, which does not cancel for large means.

>>> eg.var(eg.tensor([1.0, 2.0, 4.0]))
tensor(2.3333)
>>> eg.var(eg.tensor([1.0, 2.0, 4.0]), correction=0)
tensor(1.5556)
""",
    "std": """The standard deviation: the square root of :func:`var`, with the same arguments.

>>> eg.std(eg.tensor([1.0, 2.0, 4.0]))
tensor(1.5275)
""",
    "var_mean": """Variance and mean in one pass: a tuple ``(var, mean)``. Arguments as :func:`var`.

>>> eg.var_mean(eg.tensor([1.0, 2.0, 4.0]))
(tensor(2.3333), tensor(2.3333))
""",
    "std_mean": """\
Standard deviation and mean in one pass: ``(std, mean)``. Arguments as :func:`var`.

>>> eg.std_mean(eg.tensor([1.0, 2.0, 4.0]))
(tensor(1.5275), tensor(2.3333))
""",
    "norm": """A vector or matrix norm; :func:`evergrad.linalg.norm` is the newer spelling.

Args:
    input: floating-point or complex tensor
    p: order: a number, ``inf``, ``"fro"`` (the root of the sum of squares) or ``"nuc"``
    dim: dimension or dimensions; all elements as one vector by default
    keepdim: whether they stay, with extent 1
    dtype: type to convert to first

>>> eg.norm(eg.tensor([3.0, 4.0]))
tensor(5.)
""",
    "logsumexp": """``log(sum(exp(x)))`` along dimensions, without overflow.

Args:
    input: floating-point tensor
    dim: dimension or dimensions
    keepdim: whether they stay, with extent 1

>>> eg.logsumexp(eg.tensor([1000.0, 1000.0]), dim=0)
tensor(1000.6932)
""",
    "softmax": """Probabilities along a dimension: ``exp(x_i) / sum_j exp(x_j)``.

Args:
    input: scores, any shape, floating point
    dim: the dimension along which the result sums to 1
    dtype: type to convert the scores to first

The maximum is subtracted first, so that large scores do not overflow. To take logarithms of the
result use :func:`log_softmax`, and for a classification loss :func:`nn.functional.cross_entropy`,
which takes the scores themselves.

>>> eg.softmax(eg.tensor([1.0, 2.0, 3.0]), dim=0)
tensor([0.0900, 0.2447, 0.6652])
>>> eg.softmax(eg.zeros(2, 4), dim=1).sum(dim=1)
tensor([1., 1.])
""",
    "log_softmax": """The logarithm of :func:`softmax`: ``x_i - log(sum_j exp(x_j))``.

Args:
    input: scores, any shape, floating point
    dim: the dimension along which the probabilities sum to 1
    dtype: type to convert the scores to first

Exact where softmax underflows to zero.

>>> eg.log_softmax(eg.tensor([1.0, 2.0, 3.0]), dim=0)
tensor([-2.4076, -1.4076, -0.4076])
""",
}
