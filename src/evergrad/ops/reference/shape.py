"""Functions that rearrange elements: views, joining, splitting, repeating."""

DOCS = {
    "reshape": """The same elements in another shape: a view where strides allow, else a copy.

Args:
    input: any tensor
    shape: sizes, as numbers or one sequence; one may be -1 and follows from the others

>>> eg.arange(6).reshape(2, -1)
tensor([[0, 1, 2],
        [3, 4, 5]])
""",
    "flatten": """Dimensions ``start_dim`` to ``end_dim`` as one.

>>> eg.flatten(eg.zeros(2, 3, 4), start_dim=1).shape
evergrad.Size([2, 12])
""",
    "unflatten": """One dimension as several, of the given sizes; one may be -1.

>>> eg.unflatten(eg.zeros(6, 2), 0, (2, -1)).shape
evergrad.Size([2, 3, 2])
""",
    "ravel": """All elements in one dimension: a view if contiguous, else a copy.

>>> eg.ravel(eg.tensor([[1, 2], [3, 4]]))
tensor([1, 2, 3, 4])
""",
    "squeeze": """A view without dimensions of extent 1: all of them, or those named.

>>> eg.squeeze(eg.zeros(2, 1, 3, 1)).shape
evergrad.Size([2, 3])
>>> eg.squeeze(eg.zeros(2, 1, 3, 1), dim=1).shape
evergrad.Size([2, 3, 1])
""",
    "unsqueeze": """A view with a further dimension of extent 1 at ``dim``.

>>> eg.unsqueeze(eg.zeros(2, 3), 1).shape
evergrad.Size([2, 1, 3])
""",
    "transpose": """A view with two dimensions exchanged.

>>> eg.transpose(eg.zeros(2, 3, 4), 0, 2).shape
evergrad.Size([4, 3, 2])
""",
    "permute": """A view with the dimensions in another order.

Args:
    input: any tensor
    dims: for each dimension of the result, which one of the input it is

>>> eg.permute(eg.zeros(2, 3, 4), (2, 0, 1)).shape
evergrad.Size([4, 2, 3])
""",
    "movedim": """A view with dimensions moved from ``source`` to ``destination``.

>>> eg.movedim(eg.zeros(2, 3, 4), 0, -1).shape
evergrad.Size([3, 4, 2])
""",
    "swapaxes": """A view with two dimensions exchanged: :func:`transpose`.

>>> eg.swapaxes(eg.zeros(2, 3), 0, 1).shape
evergrad.Size([3, 2])
""",
    "t": """The transpose of a matrix; a vector stays as it is.

>>> eg.t(eg.tensor([[1, 2], [3, 4]]))
tensor([[1, 3],
        [2, 4]])
""",
    "adjoint": """The conjugate transpose of the last two dimensions.

>>> eg.adjoint(eg.tensor([[1j, 2 + 0j]])).shape
evergrad.Size([2, 1])
""",
    "broadcast_to": """A view with dimensions of extent 1 (and new ones at the front) repeated.

>>> eg.broadcast_to(eg.tensor([1, 2]), (3, 2))
tensor([[1, 2],
        [1, 2],
        [1, 2]])
""",
    "broadcast_tensors": """Views of all tensors in their common shape.

>>> a, b = eg.broadcast_tensors(eg.zeros(3, 1), eg.zeros(4))
>>> a.shape, b.shape
(evergrad.Size([3, 4]), evergrad.Size([3, 4]))
""",
    "broadcast_shapes": """The shape that these shapes broadcast to.

>>> eg.broadcast_shapes((3, 1), (4,))
evergrad.Size([3, 4])
""",
    "cat": """Tensors one after the other along an existing dimension.

Args:
    tensors: sequence of tensors whose shapes differ in ``dim`` at most
    dim: dimension

>>> eg.cat([eg.zeros(2, 3), eg.ones(1, 3)]).shape
evergrad.Size([3, 3])
""",
    "stack": """Tensors of the same shape along a new dimension.

>>> eg.stack([eg.tensor([1, 2]), eg.tensor([3, 4])], dim=1)
tensor([[1, 3],
        [2, 4]])
""",
    "hstack": """Tensors side by side: along the second dimension, vectors along the first.

>>> eg.hstack([eg.tensor([1, 2]), eg.tensor([3])])
tensor([1, 2, 3])
""",
    "vstack": """Tensors below each other: rows of a matrix.

>>> eg.vstack([eg.tensor([1, 2]), eg.tensor([3, 4])])
tensor([[1, 2],
        [3, 4]])
""",
    "dstack": """Tensors behind each other, along the third dimension.

>>> eg.dstack([eg.tensor([1, 2]), eg.tensor([3, 4])]).shape
evergrad.Size([1, 2, 2])
""",
    "column_stack": """Vectors as the columns of a matrix.

>>> eg.column_stack([eg.tensor([1, 2]), eg.tensor([3, 4])])
tensor([[1, 3],
        [2, 4]])
""",
    "split": """Views of parts along a dimension.

Args:
    tensor: any tensor
    split_size_or_sections: the size of each part (the last may be smaller), or a list of sizes
    dim: dimension

>>> [part.tolist() for part in eg.split(eg.arange(5), 2)]
[[0, 1], [2, 3], [4]]
>>> [part.tolist() for part in eg.split(eg.arange(5), [1, 4])]
[[0], [1, 2, 3, 4]]
""",
    "chunk": """At most ``chunks`` views of about the same size along a dimension.

>>> [part.tolist() for part in eg.chunk(eg.arange(5), 2)]
[[0, 1, 2], [3, 4]]
""",
    "tensor_split": """Views of parts: their number, or the indices at which to cut.

>>> [part.tolist() for part in eg.tensor_split(eg.arange(5), 2)]
[[0, 1, 2], [3, 4]]
>>> [part.tolist() for part in eg.tensor_split(eg.arange(5), (1, 3))]
[[0], [1, 2], [3, 4]]
""",
    "hsplit": """:func:`tensor_split` along the second dimension; of a vector along the first.

>>> [part.tolist() for part in eg.hsplit(eg.arange(4), 2)]
[[0, 1], [2, 3]]
""",
    "vsplit": """:func:`tensor_split` along the first dimension.

>>> [part.tolist() for part in eg.vsplit(eg.zeros(2, 1), 2)]
[[[0.0]], [[0.0]]]
""",
    "dsplit": """:func:`tensor_split` along the third dimension.

>>> len(eg.dsplit(eg.zeros(1, 1, 4), 2))
2
""",
    "unbind": """Views of all slices along a dimension, which disappears.

>>> [row.tolist() for row in eg.unbind(eg.tensor([[1, 2], [3, 4]]))]
[[1, 2], [3, 4]]
""",
    "narrow": """A view of ``length`` slices along ``dim``, beginning at ``start``.

>>> eg.narrow(eg.arange(5), 0, 1, 3)
tensor([1, 2, 3])
""",
    "select": """A view of one slice along a dimension, which disappears: ``x[:, index]``.

>>> eg.select(eg.tensor([[1, 2], [3, 4]]), 1, 0)
tensor([1, 3])
""",
    "diagonal": """A view of a diagonal of two dimensions, put last.

Args:
    input: at least two-dimensional
    offset: 0 the main diagonal, above it positive, below it negative
    dim1: first of the two dimensions
    dim2: second of them

>>> eg.diagonal(eg.tensor([[1, 2], [3, 4]]))
tensor([1, 4])
""",
    "diag": """Of a vector, the matrix with it on a diagonal; of a matrix, that diagonal.

>>> eg.diag(eg.tensor([1, 2]))
tensor([[1, 0],
        [0, 2]])
>>> eg.diag(eg.tensor([[1, 2], [3, 4]]))
tensor([1, 4])
""",
    "diag_embed": """Matrices with the last dimension on a diagonal.

>>> eg.diag_embed(eg.ones(3, 2)).shape
evergrad.Size([3, 2, 2])
""",
    "diagflat": """The matrix with all elements on a diagonal.

>>> eg.diagflat(eg.tensor([[1, 2]]))
tensor([[1, 0],
        [0, 2]])
""",
    "tril": """The lower triangle of matrices, zeros above diagonal number ``diagonal``.

>>> eg.tril(eg.ones(3, 3))
tensor([[1., 0., 0.],
        [1., 1., 0.],
        [1., 1., 1.]])
""",
    "triu": """The upper triangle of matrices, zeros below diagonal number ``diagonal``.

>>> eg.triu(eg.ones(3, 3), diagonal=1)
tensor([[0., 1., 1.],
        [0., 0., 1.],
        [0., 0., 0.]])
""",
    "tril_indices": """Row and column numbers of a lower triangle, as a matrix of two rows.

>>> eg.tril_indices(2, 2)
tensor([[0, 1, 1],
        [0, 0, 1]])
""",
    "triu_indices": """Row and column numbers of an upper triangle, as a matrix of two rows.

>>> eg.triu_indices(2, 2)
tensor([[0, 0, 1],
        [0, 1, 1]])
""",
    "flip": """The elements in reverse order along the given dimensions, as a copy.

>>> eg.flip(eg.tensor([[1, 2], [3, 4]]), dims=(1,))
tensor([[2, 1],
        [4, 3]])
""",
    "fliplr": """The elements in reverse order along the second dimension.

>>> eg.fliplr(eg.tensor([[1, 2], [3, 4]]))
tensor([[2, 1],
        [4, 3]])
""",
    "flipud": """The elements in reverse order along the first dimension.

>>> eg.flipud(eg.tensor([[1, 2], [3, 4]]))
tensor([[3, 4],
        [1, 2]])
""",
    "roll": """The elements moved along dimensions; what leaves at one end enters at the other.

Args:
    input: any tensor
    shifts: how far, one number per dimension
    dims: dimensions; without them the flattened tensor is moved

>>> eg.roll(eg.tensor([1, 2, 3, 4]), 1)
tensor([4, 1, 2, 3])
""",
    "rot90": """The plane of two dimensions turned by 90 degrees, ``k`` times.

>>> eg.rot90(eg.tensor([[1, 2], [3, 4]]))
tensor([[2, 4],
        [1, 3]])
""",
    "tile": """The whole tensor repeated, ``dims`` times in each dimension.

>>> eg.tile(eg.tensor([1, 2]), (2, 2))
tensor([[1, 2, 1, 2],
        [1, 2, 1, 2]])
""",
    "repeat_interleave": """Each element repeated.

Args:
    input: any tensor
    repeats: how often, one number or one per slice
    dim: dimension; without one the flattened tensor
    output_size: the extent of the result, if known

>>> eg.repeat_interleave(eg.tensor([1, 2]), 2)
tensor([1, 1, 2, 2])
>>> eg.repeat_interleave(eg.tensor([1, 2]), eg.tensor([3, 1]))
tensor([1, 1, 1, 2])
""",
    "meshgrid": """Coordinates on a grid, one tensor for each axis.

Args:
    tensors: the values along each axis
    indexing: ``"ij"`` for matrix order, ``"xy"`` for plots

>>> i, j = eg.meshgrid(eg.tensor([0, 1]), eg.tensor([0, 1, 2]), indexing="ij")
>>> i
tensor([[0, 0, 0],
        [1, 1, 1]])
""",
    "cartesian_prod": """All combinations of one element of each vector, as rows.

>>> eg.cartesian_prod(eg.tensor([1, 2]), eg.tensor([3, 4]))
tensor([[1, 3],
        [1, 4],
        [2, 3],
        [2, 4]])
""",
    "combinations": """All choices of ``r`` elements of a vector, as rows.

>>> eg.combinations(eg.tensor([1, 2, 3]))
tensor([[1, 2],
        [1, 3],
        [2, 3]])
""",
    "block_diag": """Matrices along the diagonal of one matrix, zeros elsewhere.

>>> eg.block_diag(eg.ones(1, 1), 2 * eg.ones(2, 1))
tensor([[1., 0.],
        [0., 2.],
        [0., 2.]])
""",
    "atleast_1d": """Numbers as tensors of one dimension; others stay as they are.

>>> eg.atleast_1d(eg.tensor(1.0)).shape
evergrad.Size([1])
""",
    "atleast_2d": """Tensors of at least two dimensions.

>>> eg.atleast_2d(eg.tensor([1.0, 2.0])).shape
evergrad.Size([1, 2])
""",
    "atleast_3d": """Tensors of at least three dimensions.

>>> eg.atleast_3d(eg.tensor([1.0, 2.0])).shape
evergrad.Size([1, 2, 1])
""",
    "as_strided": """A view of the storage with any sizes and strides.

Args:
    input: any tensor
    size: sizes of the view
    stride: for each dimension, how many elements apart in the storage
    storage_offset: where in the storage the view begins

Places may overlap; writing to such a view is refused, gradients are summed.

>>> eg.as_strided(eg.arange(4), (3, 2), (1, 1))
tensor([[0, 1],
        [1, 2],
        [2, 3]])
""",
    "clone": """A copy with its own memory; gradients pass through it.

Args:
    input: any tensor
    memory_format: order of the dimensions in memory; as in the input by default

>>> x = eg.tensor([1.0, 2.0])
>>> y = x.clone()
>>> y[0] = 9.0
>>> x
tensor([1., 2.])
""",
    "detach": """The same memory without history: no gradient passes back through it.

>>> x = eg.ones(2, requires_grad=True)
>>> (x * 2).detach().requires_grad
False
""",
    "view_as_real": """A complex tensor as pairs of real numbers, a view with a last dimension of 2.

>>> eg.view_as_real(eg.tensor([1 + 2j]))
tensor([[1., 2.]])
""",
    "view_as_complex": """Pairs of real numbers as a complex tensor, a view.

>>> eg.view_as_complex(eg.tensor([[1.0, 2.0]]))
tensor([1.+2.j])
""",
    "real": """A view of the real parts.

>>> eg.real(eg.tensor([1 + 2j]))
tensor([1.])
""",
    "imag": """A view of the imaginary parts.

>>> eg.imag(eg.tensor([1 + 2j]))
tensor([2.])
""",
    "pixel_shuffle": """Channels as pixels: ``(B, C r^2, H, W)`` becomes ``(B, C, H r, W r)``.

>>> eg.pixel_shuffle(eg.zeros(1, 8, 2, 2), 2).shape
evergrad.Size([1, 2, 4, 4])
""",
    "pixel_unshuffle": """Pixels as channels: ``(B, C, H r, W r)`` becomes ``(B, C r^2, H, W)``.

>>> eg.pixel_unshuffle(eg.zeros(1, 2, 4, 4), 2).shape
evergrad.Size([1, 8, 2, 2])
""",
    "channel_shuffle": """Channels of groups interleaved, as ShuffleNet does.

>>> eg.channel_shuffle(eg.arange(4).reshape(1, 4, 1, 1), 2).flatten()
tensor([0, 2, 1, 3])
""",
}
