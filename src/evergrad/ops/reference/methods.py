"""What only tensors have: conversions, views in their own words, filling in place, autograd."""

DOCS = {
    "view": """The same memory in another shape, or as another element type.

Args:
    size: sizes, as numbers or one sequence; one may be -1 and follows from the others
    dtype: an element type, to read the bytes as such

Raises if strides do not allow it: :func:`reshape` copies then.

>>> x = eg.arange(4)
>>> x.view(2, -1)
tensor([[0, 1],
        [2, 3]])
""",
    "view_as": """A view in the shape of another tensor.

>>> eg.arange(4).view_as(eg.zeros(2, 2)).shape
evergrad.Size([2, 2])
""",
    "reshape_as": """The same elements in the shape of another tensor.

>>> eg.arange(4).reshape_as(eg.zeros(2, 2)).shape
evergrad.Size([2, 2])
""",
    "expand": """A view with dimensions of extent 1 (and new ones at the front) repeated.

-1 keeps an extent. No memory is used; writing to the view is refused.

>>> eg.tensor([[1], [2]]).expand(-1, 3)
tensor([[1, 1, 1],
        [2, 2, 2]])
""",
    "expand_as": """A view expanded to the shape of another tensor.

>>> eg.tensor([1, 2]).expand_as(eg.zeros(3, 2)).shape
evergrad.Size([3, 2])
""",
    "repeat": """The whole tensor repeated along each dimension, as a copy.

>>> eg.tensor([1, 2]).repeat(2, 2)
tensor([[1, 2, 1, 2],
        [1, 2, 1, 2]])
""",
    "contiguous": """The tensor itself if its elements are contiguous, else a copy in order.

>>> eg.zeros(2, 3).t().contiguous().is_contiguous()
True
""",
    "unfold": """A view of all windows of ``size`` elements along a dimension, ``step`` apart.

>>> eg.arange(5).unfold(0, 3, 1)
tensor([[0, 1, 2],
        [1, 2, 3],
        [2, 3, 4]])
""",
    "to": """The tensor in another element type; itself if nothing changes.

``to(dtype)``, ``to(device)``, ``to(device, dtype)`` or ``to(other)``; ``copy=True`` copies always.
The only device is the CPU. Gradients pass through.

>>> eg.tensor([1, 2]).to(eg.float64)
tensor([1., 2.], dtype=evergrad.float64)
""",
    "type_as": """The tensor in the element type of another.

>>> eg.tensor([1]).type_as(eg.ones(1, dtype=eg.float64)).dtype
evergrad.float64
""",
    "float": """The tensor in float32.

>>> eg.tensor([1, 2]).float()
tensor([1., 2.])
""",
    "double": """The tensor in float64.

>>> eg.tensor([1, 2]).double()
tensor([1., 2.], dtype=evergrad.float64)
""",
    "half": """The tensor in float16.

>>> eg.tensor([1, 2]).half()
tensor([1., 2.], dtype=evergrad.float16)
""",
    "bfloat16": """The tensor in bfloat16.

>>> eg.tensor([1, 2]).bfloat16()
tensor([1., 2.], dtype=evergrad.bfloat16)
""",
    "int": """The tensor in int32, fractions cut off.

>>> eg.tensor([1.7, -1.7]).int()
tensor([ 1, -1], dtype=evergrad.int32)
""",
    "long": """The tensor in int64, fractions cut off.

>>> eg.tensor([1.7, -1.7]).long()
tensor([ 1, -1])
""",
    "bool": """The tensor as booleans: whether elements are not zero.

>>> eg.tensor([0.0, 2.0]).bool()
tensor([False,  True])
""",
    "item": """The only element, as a Python number.

Raises if there are several. Inside a compiled function it ends the program being recorded.

>>> eg.tensor([2.5]).item()
2.5
""",
    "tolist": """The elements as nested lists of Python numbers.

>>> eg.tensor([[1, 2], [3, 4]]).tolist()
[[1, 2], [3, 4]]
""",
    "numpy": """The elements as a NumPy array on the same memory.

Args:
    force: whether to detach a tensor that requires grad in place of raising

>>> eg.tensor([1.0, 2.0]).numpy()
array([1., 2.], dtype=float32)
""",
    "new_zeros": """Zeros of the element type of this tensor.

>>> eg.ones(1, dtype=eg.int64).new_zeros(2)
tensor([0, 0])
""",
    "new_ones": """Ones of the element type of this tensor.

>>> eg.ones(1, dtype=eg.int64).new_ones(2)
tensor([1, 1])
""",
    "new_full": """One number in the element type of this tensor.

>>> eg.ones(1).new_full((2,), 7)
tensor([7., 7.])
""",
    "new_tensor": """A tensor of new data in the element type of this one.

>>> eg.ones(1, dtype=eg.float64).new_tensor([1, 2])
tensor([1., 2.], dtype=evergrad.float64)
""",
    "copy_": """Write the elements of another tensor into this one; shapes broadcast.

>>> eg.zeros(2).copy_(eg.tensor([1, 2]))
tensor([1., 2.])
""",
    "zero_": """Set all elements to zero.

>>> eg.ones(2).zero_()
tensor([0., 0.])
""",
    "fill_": """Set all elements to one number.

>>> eg.zeros(2).fill_(7)
tensor([7., 7.])
""",
    "uniform_": """Fill with uniform random numbers between two bounds.

>>> bool((eg.empty(100).uniform_(-1, 1).abs() <= 1).all())
True
""",
    "normal_": """Fill with normal random numbers of a mean and a standard deviation.

>>> eg.empty(2, 3).normal_(0, 0.02).shape
evergrad.Size([2, 3])
""",
    "sum_to_size": """\
The sum over the dimensions along which ``size`` would be expanded to this shape.

>>> eg.ones(3, 2).sum_to_size(1, 2)
tensor([[3., 3.]])
""",
    "backward": """\
Compute the gradients of all leaves this tensor depends on, and add them to ``grad``.

Args:
    gradient: cotangent of this tensor; 1 for a single number
    retain_graph: whether residuals stay for another backward
    create_graph: whether gradients have a graph of their own, for higher derivatives
    inputs: leaves to accumulate into, all by default

>>> x = eg.tensor([1.0, 2.0], requires_grad=True)
>>> (x ** 2).sum().backward()
>>> x.grad
tensor([2., 4.])
""",
    "register_hook": """Call a function with the gradient of this tensor when backward computes it.

What it returns, if anything, takes the gradient's place. Returns a handle with ``remove()``.

>>> x = eg.ones(2, requires_grad=True)
>>> handle = x.register_hook(lambda gradient: 10 * gradient)
>>> x.sum().backward()
>>> x.grad
tensor([10., 10.])
""",
    "detach_": """Cut this tensor off its graph, in place.

>>> (eg.ones(1, requires_grad=True) * 2).detach_().requires_grad
False
""",
    "to_sparse": """The elements that are not zero, as a sparse tensor of coordinates.

>>> eg.tensor([0.0, 3.0]).to_sparse().values()
tensor([3.])
""",
    "to_dense": """\
A sparse or nested tensor with all its elements; a dense one is returned as it is.

>>> eg.eye(2).to_sparse().to_dense()
tensor([[1., 0.],
        [0., 1.]])
""",
}
