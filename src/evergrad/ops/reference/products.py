"""Products of vectors, matrices and stacks of them."""

DOCS = {
    "matmul": """The matrix product ``input @ other``.

Args:
    input: (K), (N, K) or (..., N, K)
    other: (K), (K, M) or (..., K, M); dimensions in front of the last two broadcast

Two vectors give their dot product, a matrix and a vector a vector.

>>> eg.matmul(eg.tensor([[1.0, 2.0], [3.0, 4.0]]), eg.tensor([1.0, 1.0]))
tensor([3., 7.])
>>> eg.matmul(eg.zeros(5, 1, 2, 3), eg.zeros(4, 3, 6)).shape
evergrad.Size([5, 4, 2, 6])
""",
    "mm": """The product of two matrices (N, K) and (K, M), without broadcasting.

>>> eg.mm(eg.tensor([[1.0, 2.0]]), eg.tensor([[3.0], [4.0]]))
tensor([[11.]])
""",
    "bmm": """Products of matrices in two stacks: (B, N, K) and (B, K, M) give (B, N, M).

>>> eg.bmm(eg.ones(2, 3, 4), eg.ones(2, 4, 5)).shape
evergrad.Size([2, 3, 5])
""",
    "mv": """A matrix (N, K) times a vector (K).

>>> eg.mv(eg.tensor([[1.0, 2.0], [3.0, 4.0]]), eg.tensor([1.0, 1.0]))
tensor([3., 7.])
""",
    "dot": """The sum of the products of two vectors' elements.

>>> eg.dot(eg.tensor([1.0, 2.0]), eg.tensor([3.0, 4.0]))
tensor(11.)
""",
    "vdot": """The dot product with the first vector conjugated.

>>> eg.vdot(eg.tensor([1j]), eg.tensor([1j]))
tensor(1.+0.j)
""",
    "inner": """Sums of products along the last dimensions: of vectors, the dot product.

>>> eg.inner(eg.tensor([1.0, 2.0]), eg.tensor([[3.0, 4.0], [5.0, 6.0]]))
tensor([11., 17.])
""",
    "outer": """All products of two vectors' elements: (N) and (M) give (N, M).

>>> eg.outer(eg.tensor([1.0, 2.0]), eg.tensor([3.0, 4.0]))
tensor([[3., 4.],
        [6., 8.]])
""",
    "addmm": """``beta * input + alpha * (mat1 @ mat2)``

Args:
    input: broadcasts to (N, M); not read if ``beta`` is 0
    mat1: (N, K)
    mat2: (K, M)
    beta: factor of ``input``
    alpha: factor of the product

>>> eg.addmm(eg.ones(2), eg.eye(2), eg.eye(2), beta=2)
tensor([[3., 2.],
        [2., 3.]])
""",
    "addmv": """``beta * input + alpha * (mat @ vec)``

>>> eg.addmv(eg.ones(2), eg.eye(2), eg.ones(2))
tensor([2., 2.])
""",
    "addr": """``beta * input + alpha * outer(vec1, vec2)``

>>> eg.addr(eg.zeros(2, 2), eg.tensor([1.0, 2.0]), eg.tensor([3.0, 4.0]))
tensor([[3., 4.],
        [6., 8.]])
""",
    "baddbmm": """``beta * input + alpha * bmm(batch1, batch2)``

>>> eg.baddbmm(eg.ones(1, 2, 2), eg.ones(1, 2, 3), eg.ones(1, 3, 2))
tensor([[[4., 4.],
         [4., 4.]]])
""",
    "addbmm": """``beta * input + alpha *`` the sum of the products of two stacks.

>>> eg.addbmm(eg.zeros(2, 2), eg.ones(4, 2, 3), eg.ones(4, 3, 2))
tensor([[12., 12.],
        [12., 12.]])
""",
    "einsum": """Sums of products, named by letters: Einstein's notation.

Args:
    equation: subscripts of each operand and of the result; a letter that the result does not have
        is summed over, ``...`` denotes dimensions that broadcast
    operands: tensors

Several operands are multiplied in a good order, found by ``opt_einsum``.

>>> a, b = eg.ones(2, 3), eg.ones(3, 4)
>>> eg.einsum("ij,jk->ik", a, b).shape
evergrad.Size([2, 4])
>>> eg.einsum("ij->j", a)
tensor([2., 2., 2.])
""",
    "tensordot": """The sum over pairs of dimensions: the last ``dims`` of ``a`` with the first of
``b``, or two lists.

>>> eg.tensordot(eg.ones(2, 3, 4), eg.ones(3, 4, 5), dims=2).shape
evergrad.Size([2, 5])
""",
    "kron": """The Kronecker product: each element of ``input`` times all of ``other``.

>>> eg.kron(eg.eye(2), eg.tensor([[1.0, 2.0]]))
tensor([[1., 2., 0., 0.],
        [0., 0., 1., 2.]])
""",
    "cross": """The vector product of three-dimensional vectors along ``dim``.

>>> eg.cross(eg.tensor([1.0, 0.0, 0.0]), eg.tensor([0.0, 1.0, 0.0]), dim=0)
tensor([0., 0., 1.])
""",
    "chain_matmul": """The product of several matrices, in the order that needs the fewest steps.

>>> eg.linalg.multi_dot([eg.ones(2, 3), eg.ones(3, 4), eg.ones(4, 1)])
tensor([[12.],
        [12.]])
""",
    "cdist": """Distances of all pairs of rows: (B, P, M) and (B, R, M) give (B, P, R).

Args:
    x1: points
    x2: points
    p: order of the norm
    compute_mode: when to use a matrix product for ``p = 2``; it is faster and less exact

>>> eg.cdist(eg.tensor([[0.0, 0.0]]), eg.tensor([[3.0, 4.0], [0.0, 1.0]]))
tensor([[5., 1.]])
""",
    "pdist": """Distances of all pairs of rows of a matrix, each pair once.

>>> eg.pdist(eg.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
tensor([5.0000, 1.0000, 4.2426])
""",
    "pairwise_distance": """The ``p``-norm of ``x1 - x2 + eps`` along the last dimension.

>>> F.pairwise_distance(eg.zeros(1, 2), eg.tensor([[3.0, 4.0]]))
tensor([5.0000])
""",
    "cosine_similarity": """The cosine of the angle between vectors along ``dim``.

>>> eg.cosine_similarity(eg.tensor([[1.0, 0.0]]), eg.tensor([[1.0, 1.0]]))
tensor([0.7071])
""",
    "F.linear": """``input @ weight.T + bias``

Args:
    input: (..., in_features)
    weight: (out_features, in_features)
    bias: (out_features), or none

>>> F.linear(eg.tensor([[1.0, 2.0]]), eg.tensor([[1.0, 1.0], [0.0, 3.0]]), eg.tensor([0.5, 0.0]))
tensor([[3.5000, 6.0000]])
""",
    "bilinear": """``x1^T W x2 + b`` for each output feature.

>>> F.bilinear(eg.ones(2, 3), eg.ones(2, 4), eg.ones(5, 3, 4)).shape
evergrad.Size([2, 5])
""",
    "det": """The determinant of square matrices.

>>> eg.det(eg.tensor([[1.0, 2.0], [3.0, 4.0]]))
tensor(-2.)
""",
    "logdet": """The logarithm of the determinant; NaN if it is negative.

>>> eg.logdet(2 * eg.eye(2))
tensor(1.3863)
""",
    "slogdet": """Sign and logarithm of the absolute value of the determinant.

>>> eg.slogdet(-3 * eg.eye(1))
evergrad.return_types.slogdet(
sign=tensor(-1.),
logabsdet=tensor(1.0986))
""",
    "inverse": """The inverse of square matrices: see ``evergrad.linalg.inv``.

>>> eg.inverse(2 * eg.eye(2))
tensor([[0.5000, 0.0000],
        [0.0000, 0.5000]])
""",
    "trace": """The sum of the main diagonal of a matrix.

>>> eg.trace(eg.tensor([[1.0, 2.0], [3.0, 4.0]]))
tensor(5.)
""",
    "matrix_power": """A square matrix multiplied by itself ``n`` times; negative inverts.

>>> eg.matrix_power(eg.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
tensor([[1., 3.],
        [0., 1.]])
""",
    "matrix_exp": """The exponential of square matrices.

>>> eg.matrix_exp(eg.zeros(2, 2))
tensor([[1., 0.],
        [0., 1.]])
""",
    "cholesky": """The lower factor ``L`` of a positive-definite matrix ``L L^T``.

>>> eg.linalg.cholesky(eg.tensor([[4.0, 2.0], [2.0, 5.0]]))
tensor([[2., 0.],
        [1., 2.]])
""",
}
