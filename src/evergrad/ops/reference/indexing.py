"""Functions that read and write by index or mask."""

DOCS = {
    "gather": """Elements picked along a dimension: ``out[i][j] = input[index[i][j]][j]`` for dim 0.

Args:
    input: any tensor
    dim: dimension to pick along
    index: int64, as many dimensions as ``input``, none of them larger (but for ``dim``)
    sparse_grad: whether the gradient of ``input`` is a sparse tensor

>>> eg.gather(eg.tensor([[1, 2], [3, 4]]), 1, eg.tensor([[0, 0], [1, 0]]))
tensor([[1, 1],
        [4, 3]])
""",
    "scatter": """A copy of ``input`` with values of ``src`` written at ``index`` along a dimension.

Args:
    input: any tensor
    dim: dimension to write along
    index: int64, as many dimensions as ``input``
    src: tensor of values, or a number
    value: a number, in place of ``src``
    reduce: ``"add"`` or ``"multiply"`` to combine with what is there

Where an index occurs twice the last value stays.

>>> eg.scatter(eg.zeros(2, 3), 1, eg.tensor([[2], [0]]), 5.0)
tensor([[0., 0., 5.],
        [5., 0., 0.]])
""",
    "scatter_add": """\
A copy of ``input`` with values of ``src`` added at ``index`` along a dimension.

Args:
    input: any tensor
    dim: dimension
    index: int64; repeated indices add up
    src: tensor of values

>>> eg.scatter_add(eg.zeros(3), 0, eg.tensor([0, 0, 2]), eg.tensor([1.0, 2.0, 3.0]))
tensor([3., 0., 3.])
""",
    "scatter_reduce": """A copy of ``input`` with values of ``src`` combined at ``index``.

Args:
    input: any tensor
    dim: dimension
    index: int64
    src: tensor of values
    reduce: ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``
    include_self: whether the elements of ``input`` take part

>>> eg.scatter_reduce(eg.zeros(2), 0, eg.tensor([0, 0, 1]), eg.tensor([1.0, 3.0, 2.0]), "amax")
tensor([3., 2.])
""",
    "index_select": """Slices along a dimension, in the order of an index vector, as a copy.

>>> eg.index_select(eg.tensor([[1, 2], [3, 4]]), 0, eg.tensor([1, 1]))
tensor([[3, 4],
        [3, 4]])
""",
    "index_add": """\
A copy with slices of ``source`` times ``alpha`` added along ``dim`` at ``index``.

>>> eg.index_add(eg.zeros(3), 0, eg.tensor([0, 0, 2]), eg.tensor([1.0, 2.0, 3.0]))
tensor([3., 0., 3.])
""",
    "index_copy": """A copy with slices of ``source`` written along ``dim`` at ``index``.

>>> eg.index_copy(eg.zeros(3), 0, eg.tensor([0, 2]), eg.tensor([1.0, 3.0]))
tensor([1., 0., 3.])
""",
    "index_fill": """A copy with the slices along ``dim`` at ``index`` filled with a number.

>>> eg.index_fill(eg.zeros(3), 0, eg.tensor([0, 2]), 7.0)
tensor([7., 0., 7.])
""",
    "index_reduce": """A copy with slices of ``source`` combined along ``dim`` at ``index``.

>>> eg.index_reduce(eg.ones(2), 0, eg.tensor([0, 0]), eg.tensor([2.0, 3.0]), "prod")
tensor([6., 1.])
""",
    "index_put": """A copy with ``values`` written where a tuple of index tensors points.

Args:
    input: any tensor
    indices: one tensor for each of the first dimensions; they broadcast
    values: tensor that broadcasts to the places
    accumulate: whether to add to what is there, repeated places included

>>> eg.index_put(eg.zeros(3), (eg.tensor([0, 0]),), eg.tensor(1.0), accumulate=True)
tensor([2., 0., 0.])
""",
    "put": """A copy with values written at places of the flattened tensor.

>>> eg.put(eg.zeros(2, 2), eg.tensor([0, 3]), eg.tensor([1.0, 2.0]))
tensor([[1., 0.],
        [0., 2.]])
""",
    "take": """Elements at places of the flattened tensor, in the shape of ``index``.

>>> eg.take(eg.tensor([[1, 2], [3, 4]]), eg.tensor([0, 3]))
tensor([1, 4])
""",
    "take_along_dim": """\
:func:`gather` whose index broadcasts; goes with ``argsort`` and ``argmax``.

>>> x = eg.tensor([[3, 1, 2]])
>>> eg.take_along_dim(x, x.argsort(dim=1), dim=1)
tensor([[1, 2, 3]])
""",
    "masked_select": """The elements where a mask holds, as a vector; mask and input broadcast.

>>> x = eg.tensor([1.0, -1.0, 2.0])
>>> eg.masked_select(x, x > 0)
tensor([1., 2.])
""",
    "masked_fill": """A copy with a number where a mask holds.

Args:
    input: any tensor
    mask: boolean, broadcasts to ``input``
    value: number, or tensor without dimensions

>>> eg.masked_fill(eg.zeros(3), eg.tensor([True, False, True]), -eg.inf)
tensor([-inf, 0., -inf])
""",
    "masked_scatter": """\
A copy with the elements of ``source``, one after the other, where a mask holds.

>>> eg.masked_scatter(eg.zeros(3), eg.tensor([True, False, True]), eg.tensor([1.0, 2.0]))
tensor([1., 0., 2.])
""",
    "nonzero": """The places of the elements that are not zero.

Args:
    input: any tensor
    as_tuple: one vector for each dimension, fit for indexing, in place of a matrix with a row for
        each element

>>> eg.nonzero(eg.tensor([[0, 1], [2, 0]]))
tensor([[0, 1],
        [1, 0]])
>>> eg.nonzero(eg.tensor([[0, 1], [2, 0]]), as_tuple=True)
(tensor([0, 1]), tensor([1, 0]))
""",
    "argwhere": """The places of the elements that are not zero, one row each.

>>> eg.argwhere(eg.tensor([0, 5, 6]))
tensor([[1],
        [2]])
""",
    "select_scatter": """A copy with ``src`` in the place of one slice along ``dim``.

>>> eg.select_scatter(eg.zeros(2, 2), eg.ones(2), 0, 1)
tensor([[0., 0.],
        [1., 1.]])
""",
    "slice_scatter": """A copy with ``src`` in the place of ``input[start:end:step]`` along ``dim``.

>>> eg.slice_scatter(eg.zeros(4), eg.ones(2), 0, 1, 3)
tensor([0., 1., 1., 0.])
""",
    "diagonal_scatter": """A copy with ``src`` on a diagonal.

>>> eg.diagonal_scatter(eg.zeros(2, 2), eg.ones(2))
tensor([[1., 0.],
        [0., 1.]])
""",
    "embedding": """Rows of a table, one for each index: ``weight[indices]``.

Args:
    weight: table (V, C)
    indices: integers of any shape
    padding_idx: row whose gradient stays zero; -1 for none
    scale_grad_by_freq: whether gradients are divided by how often a row occurs
    sparse: whether the gradient of ``weight`` is a sparse tensor

>>> eg.embedding(eg.tensor([[1.0, 2.0], [3.0, 4.0]]), eg.tensor([1, 0, 1]))
tensor([[3., 4.],
        [1., 2.],
        [3., 4.]])
""",
    "F.one_hot": """Classes as vectors of zeros with a single 1.

Args:
    tensor: integers that are not negative
    num_classes: length of the vectors; -1 for the largest class plus one

>>> F.one_hot(eg.tensor([0, 2]), num_classes=3)
tensor([[1, 0, 0],
        [0, 0, 1]])
""",
}
