"""``evergrad.linalg``: factorisations, solutions and norms of matrices and stacks of them."""

DOCS = {
    "linalg.norm": """A vector or matrix norm.

Args:
    input: tensor
    ord: order; ``None`` is the root of the sum of squares
    dim: one dimension for a vector norm, two for a matrix norm
    keepdim: whether they stay, with extent 1
    dtype: type to convert to first

>>> eg.linalg.norm(eg.tensor([3.0, 4.0]))
tensor(5.)
""",
    "linalg.vector_norm": """\
The ``ord``-norm of vectors: ``sum(|x|^ord)^(1/ord)``, or the largest for inf.

>>> eg.linalg.vector_norm(eg.tensor([3.0, 4.0]), ord=1)
tensor(7.)
""",
    "linalg.matrix_norm": """\
The norm of matrices: ``"fro"``, ``"nuc"``, inf, 1, 2 and their negatives.

>>> eg.linalg.matrix_norm(eg.tensor([[3.0, 0.0], [0.0, 4.0]]))
tensor(5.)
""",
    "linalg.solve": """The solution ``X`` of ``A X = B``, or of ``X A = B`` if not ``left``.

Args:
    A: (..., N, N), invertible
    B: (..., N) or (..., N, K)
    left: on which side ``A`` stands

Raises ``LinAlgError`` if a matrix is singular. More exact and faster than ``inv(A) @ B``.

>>> eg.linalg.solve(eg.tensor([[2.0, 0.0], [0.0, 4.0]]), eg.tensor([2.0, 4.0]))
tensor([1., 1.])
""",
    "linalg.inv": """The inverse of square matrices; ``LinAlgError`` if one is singular.

>>> eg.linalg.inv(2 * eg.eye(2))
tensor([[0.5000, 0.0000],
        [0.0000, 0.5000]])
""",
    "linalg.pinv": """The Moore-Penrose pseudoinverse, by singular values.

>>> eg.linalg.pinv(2 * eg.eye(2))
tensor([[0.5000, 0.0000],
        [0.0000, 0.5000]])
""",
    "linalg.det": """The determinant of square matrices.

>>> eg.linalg.det(eg.tensor([[1.0, 2.0], [3.0, 4.0]]))
tensor(-2.)
""",
    "linalg.slogdet": """Sign and logarithm of the absolute value of the determinant: no overflow.

>>> eg.linalg.slogdet(3 * eg.eye(1)).sign
tensor(1.)
""",
    "linalg.svd": """The singular value decomposition ``A = U diag(S) Vh``.

Args:
    A: (..., M, N)
    full_matrices: whether ``U`` and ``Vh`` are square
    driver: accepted, has no effect

Returns a named tuple ``(U, S, Vh)``, ``S`` in falling order. Gradients of ``U`` and ``Vh`` exist
for
distinct singular values.

>>> eg.linalg.svd(eg.tensor([[3.0, 0.0], [0.0, 4.0]])).S
tensor([4., 3.])
""",
    "linalg.svdvals": """The singular values, in falling order.

>>> eg.linalg.svdvals(eg.tensor([[3.0, 0.0], [0.0, 4.0]]))
tensor([4., 3.])
""",
    "linalg.qr": """The factors ``A = Q R``: orthonormal columns and an upper triangle.

Args:
    A: (..., M, N)
    mode: ``"reduced"``, ``"complete"`` (square Q) or ``"r"`` (no Q)

>>> eg.linalg.qr(eg.eye(2)).R.abs()
tensor([[1., 0.],
        [0., 1.]])
""",
    "linalg.cholesky": """\
The triangle ``L`` with ``A = L L^H`` of a Hermitian positive-definite matrix.

>>> eg.linalg.cholesky(eg.tensor([[4.0, 2.0], [2.0, 5.0]]))
tensor([[2., 0.],
        [1., 2.]])
""",
    "linalg.eigh": """Eigenvalues, rising, and eigenvectors (columns) of Hermitian matrices.

Args:
    input: (..., N, N); only one triangle is read
    UPLO: ``"L"`` the lower, ``"U"`` the upper

>>> eg.linalg.eigh(eg.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
tensor([1., 2.])
""",
    "linalg.eigvalsh": """Eigenvalues of Hermitian matrices, rising.

>>> eg.linalg.eigvalsh(eg.tensor([[2.0, 0.0], [0.0, 1.0]]))
tensor([1., 2.])
""",
    "linalg.eig": """Eigenvalues and eigenvectors (columns) of square matrices, complex.

>>> eg.linalg.eig(eg.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
tensor([2.+0.j, 1.+0.j])
""",
    "linalg.eigvals": """Eigenvalues of square matrices, complex.

>>> eg.linalg.eigvals(eg.tensor([[2.0, 0.0], [0.0, 1.0]]))
tensor([2.+0.j, 1.+0.j])
""",
    "linalg.lstsq": """The ``X`` that makes ``|A X - B|`` smallest.

Returns a named tuple ``(solution, residuals, rank, singular_values)``.

>>> eg.linalg.lstsq(2 * eg.eye(2), eg.ones(2, 1)).solution
tensor([[0.5000],
        [0.5000]])
""",
    "linalg.matrix_rank": """How many singular values are above a tolerance.

>>> eg.linalg.matrix_rank(eg.ones(3, 3))
tensor(1)
""",
    "linalg.matrix_power": """A square matrix multiplied by itself ``n`` times; negative inverts.

>>> eg.linalg.matrix_power(eg.tensor([[1.0, 1.0], [0.0, 1.0]]), 3)
tensor([[1., 3.],
        [0., 1.]])
""",
    "linalg.multi_dot": """\
The product of several matrices, in the order that needs the fewest steps.

>>> eg.linalg.multi_dot([eg.ones(2, 3), eg.ones(3, 4), eg.ones(4, 1)])
tensor([[12.],
        [12.]])
""",
    "linalg.solve_triangular": """The solution of ``A X = B`` for a triangular ``A``.

>>> eg.linalg.solve_triangular(eg.tensor([[2.0, 0.0], [1.0, 1.0]]), eg.ones(2, 1), upper=False)
tensor([[0.5000],
        [0.5000]])
""",
    "linalg.cond": """The condition number: the largest singular value by the smallest.

>>> eg.linalg.cond(eg.tensor([[4.0, 0.0], [0.0, 2.0]]))
tensor(2.)
""",
    "linalg.cross": """The vector product of three-dimensional vectors along ``dim``.

>>> eg.linalg.cross(eg.tensor([1.0, 0.0, 0.0]), eg.tensor([0.0, 1.0, 0.0]))
tensor([0., 0., 1.])
""",
    "linalg.vecdot": """Dot products along a dimension, the first factor conjugated.

>>> eg.linalg.vecdot(eg.tensor([1.0, 2.0]), eg.tensor([3.0, 4.0]))
tensor(11.)
""",
    "linalg.lu": """The factors ``A = P L U``: a permutation and two triangles.

>>> eg.linalg.lu(eg.tensor([[0.0, 1.0], [2.0, 3.0]])).U
tensor([[2., 3.],
        [0., 1.]])
""",
    "linalg.matrix_exp": """The exponential of square matrices.

>>> eg.linalg.matrix_exp(eg.zeros(2, 2))
tensor([[1., 0.],
        [0., 1.]])
""",
}
