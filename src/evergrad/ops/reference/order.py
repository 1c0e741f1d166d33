"""Order and counting: medians, scans, sorting, histograms, correlations."""

DOCS = {
    "median": """The middle element of the sorted ones, the lower of two; or along a dimension.

Args:
    input: any real tensor
    dim: dimension; without one, of all elements
    keepdim: whether it stays, with extent 1

Returns a tensor, or with ``dim`` a named tuple ``(values, indices)``. For the mean of the two
middle
ones use :func:`quantile` with 0.5.

>>> eg.median(eg.tensor([3.0, 1.0, 2.0, 4.0]))
tensor(2.)
""",
    "nanmedian": """:func:`median` of the elements that are not NaN.

>>> eg.nanmedian(eg.tensor([3.0, eg.nan, 1.0]))
tensor(1.)
""",
    "mode": """The most frequent element along a dimension, and where it is last.

Returns a named tuple ``(values, indices)``; of equally frequent ones the smallest.

>>> eg.mode(eg.tensor([1, 2, 2, 3])).values
tensor(2)
""",
    "quantile": """The value below which a fraction ``q`` of the elements is.

Args:
    input: floating-point tensor
    q: number or one-dimensional tensor of numbers in [0, 1]
    dim: dimension; ``None`` for all elements
    keepdim: whether it stays, with extent 1
    interpolation: between two elements: ``linear``, ``lower``, ``higher``, ``midpoint``,
        ``nearest``

>>> eg.quantile(eg.tensor([1.0, 2.0, 3.0, 4.0]), eg.tensor([0.25, 0.5]))
tensor([1.7500, 2.5000])
""",
    "nanquantile": """:func:`quantile` of the elements that are not NaN.

>>> eg.nanquantile(eg.tensor([1.0, eg.nan, 3.0]), 0.5)
tensor(2.)
""",
    "cumsum": """The running sum along a dimension: ``y_i = x_0 + ... + x_i``.

Args:
    input: any tensor
    dim: dimension
    dtype: type to convert to first; integers and booleans are summed in int64

>>> eg.cumsum(eg.tensor([1, 2, 3]), dim=0)
tensor([1, 3, 6])
""",
    "cumprod": """The running product along a dimension.

Args:
    input: any tensor
    dim: dimension
    dtype: type to convert to first

The gradient is exact for zeros too.

>>> eg.cumprod(eg.tensor([1, 2, 3]), dim=0)
tensor([1, 2, 6])
""",
    "cummax": """The running maximum along a dimension and where it is: ``(values, indices)``.

>>> eg.cummax(eg.tensor([1, 3, 2]), dim=0).values
tensor([1, 3, 3])
""",
    "cummin": """The running minimum along a dimension and where it is: ``(values, indices)``.

>>> eg.cummin(eg.tensor([3, 1, 2]), dim=0).values
tensor([3, 1, 1])
""",
    "logcumsumexp": """The running :func:`logsumexp` along a dimension.

>>> eg.logcumsumexp(eg.tensor([1000.0, 1000.0]), dim=0)
tensor([1000.0000, 1000.6932])
""",
    "diff": """Differences of neighbours along a dimension, ``n`` times over.

Args:
    input: any tensor
    n: how often
    dim: dimension
    prepend: tensor to put before ``input`` first
    append: tensor to put behind it

>>> eg.diff(eg.tensor([1, 4, 9, 16]))
tensor([3, 5, 7])
>>> eg.diff(eg.tensor([1, 4, 9, 16]), n=2)
tensor([2, 2])
""",
    "trapezoid": """The integral by the trapezoidal rule along a dimension.

Args:
    y: values
    x: where they are; without it they are ``dx`` apart
    dx: distance
    dim: dimension

>>> eg.trapezoid(eg.tensor([0.0, 1.0, 2.0]), dx=0.5)
tensor(1.)
""",
    "cumulative_trapezoid": """The running integral by the trapezoidal rule.

>>> eg.cumulative_trapezoid(eg.tensor([0.0, 1.0, 2.0]))
tensor([0.5000, 2.0000])
""",
    "gradient": """Central differences: an estimate of the derivative of samples, per dimension.

Args:
    input: samples
    spacing: distance of the samples, one number or one per dimension, or coordinates
    dim: dimension or dimensions; all of them by default
    edge_order: 1 or 2, of the one-sided differences at the ends

Returns a tuple with one tensor per dimension. It has nothing to do with automatic differentiation:
see ``evergrad.autograd.grad``.

>>> eg.gradient(eg.tensor([0.0, 1.0, 4.0, 9.0]))
(tensor([1., 2., 4., 5.]),)
""",
    "sort": """The elements in order along a dimension, and where they were.

Args:
    input: any real tensor
    dim: dimension, the last by default
    descending: largest first
    stable: whether equal elements keep their order

Returns a named tuple ``(values, indices)``. NaN counts as largest.

>>> values, indices = eg.sort(eg.tensor([3.0, 1.0, 2.0]))
>>> values, indices
(tensor([1., 2., 3.]), tensor([1, 2, 0]))
""",
    "argsort": """The indices that sort along a dimension: ``sort(...).indices``.

>>> eg.argsort(eg.tensor([3.0, 1.0, 2.0]))
tensor([1, 2, 0])
""",
    "msort": """The elements in order along the first dimension.

>>> eg.msort(eg.tensor([[3, 1], [2, 4]]))
tensor([[2, 1],
        [3, 4]])
""",
    "topk": """The ``k`` largest elements along a dimension, and where they are.

Args:
    input: any real tensor
    k: how many
    dim: dimension, the last by default
    largest: ``False`` for the smallest
    sorted: whether they come in order

Returns a named tuple ``(values, indices)``; the gradient goes to the chosen elements.

>>> eg.topk(eg.tensor([3.0, 1.0, 4.0, 2.0]), 2)
evergrad.return_types.topk(
values=tensor([4., 3.]),
indices=tensor([2, 0]))
""",
    "kthvalue": """The ``k``-th smallest element along a dimension, counted from 1, and where it is.

>>> eg.kthvalue(eg.tensor([3.0, 1.0, 2.0]), 2).values
tensor(2.)
""",
    "unique": """The distinct elements.

Args:
    input: any tensor
    sorted: accepted; the result is always in order
    return_inverse: also where each element is in the result
    return_counts: also how often each occurs
    dim: distinct slices along a dimension in place of elements

>>> eg.unique(eg.tensor([3, 1, 3, 2]), return_counts=True)
(tensor([1, 2, 3]), tensor([1, 1, 2]))
""",
    "unique_consecutive": """Runs of equal elements as one each.

>>> eg.unique_consecutive(eg.tensor([1, 1, 2, 1]))
tensor([1, 2, 1])
""",
    "bincount": """How often each number 0, 1, 2, ... occurs.

Args:
    input: one-dimensional, integers that are not negative
    weights: what each occurrence counts, 1 by default
    minlength: least length of the result

>>> eg.bincount(eg.tensor([0, 2, 2]), minlength=4)
tensor([1, 0, 2, 0])
""",
    "histc": """How many elements fall into each of ``bins`` equal intervals.

Args:
    input: floating-point tensor
    bins: number of intervals
    min: lower end; with ``min == max`` the smallest and largest element are taken
    max: upper end

>>> eg.histc(eg.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
tensor([0., 2., 1., 0.])
""",
    "histogram": """How many elements fall into each interval, and the edges of the intervals.

Args:
    input: floating-point tensor
    bins: their number, or a tensor of edges
    range: lower and upper end
    weight: what each element counts
    density: whether the result integrates to 1

Returns a named tuple ``(hist, bin_edges)``.

>>> eg.histogram(eg.tensor([1.0, 2.0, 1.0]), bins=4, range=(0.0, 3.0)).hist
tensor([0., 2., 1., 0.])
""",
    "searchsorted": """Where each value would be inserted into a sorted sequence.

Args:
    sorted_sequence: sorted along its last dimension
    input: values
    out_int32: whether the result is int32 in place of int64
    right: behind equal elements in place of before them
    side: ``"left"`` or ``"right"``, the same in words
    sorter: indices that sort the sequence

>>> eg.searchsorted(eg.tensor([1, 3, 5]), eg.tensor([0, 3, 9]))
tensor([0, 1, 3])
""",
    "bucketize": """In which interval between ``boundaries`` each value is.

>>> eg.bucketize(eg.tensor([0.5, 3.0]), eg.tensor([1.0, 2.0]))
tensor([0, 2])
""",
    "cov": """The covariance matrix of variables (rows) over observations (columns).

>>> eg.cov(eg.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
tensor([[ 1., -1.],
        [-1.,  1.]])
""",
    "corrcoef": """The correlation matrix of variables (rows) over observations (columns).

>>> eg.corrcoef(eg.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
tensor([[ 1., -1.],
        [-1.,  1.]])
""",
    "renorm": """Slices along ``dim`` scaled down to a ``p``-norm of at most ``maxnorm``.

>>> eg.renorm(eg.tensor([[3.0, 4.0], [0.3, 0.4]]), p=2, dim=0, maxnorm=1.0)
tensor([[0.6000, 0.8000],
        [0.3000, 0.4000]])
""",
    "dist": """The ``p``-norm of the difference of two tensors.

>>> eg.dist(eg.tensor([0.0, 0.0]), eg.tensor([3.0, 4.0]))
tensor(5.)
""",
}
