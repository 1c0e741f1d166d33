"""Functions that copy what a view shows."""

DOCS = {
    "is_signed": """Whether the element type has negative numbers.

>>> eg.is_signed(eg.ones(1, dtype=eg.uint8))
False
""",
    "alias_copy": """A copy of what ``alias`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.alias_copy(x)
tensor([[0., 1.],
        [2., 3.]])
""",
    "as_strided_copy": """A copy of what ``as_strided`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.as_strided_copy(x, (2,), (3,))
tensor([0., 3.])
""",
    "detach_copy": """A copy of what ``detach`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.detach_copy(x)
tensor([[0., 1.],
        [2., 3.]])
""",
    "diagonal_copy": """A copy of what ``diagonal`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.diagonal_copy(x)
tensor([0., 3.])
""",
    "expand_copy": """A copy of what ``expand`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.expand_copy(x[0], (2, 2))
tensor([[0., 1.],
        [0., 1.]])
""",
    "narrow_copy": """A copy of what ``narrow`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.narrow_copy(x, 0, 1, 1)
tensor([[2., 3.]])
""",
    "permute_copy": """A copy of what ``permute`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.permute_copy(x, (1, 0))
tensor([[0., 2.],
        [1., 3.]])
""",
    "select_copy": """A copy of what ``select`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.select_copy(x, 0, 1)
tensor([2., 3.])
""",
    "slice_copy": """A copy of what ``slice`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.slice_copy(x, 0, 1)
tensor([[2., 3.]])
""",
    "split_copy": """A copy of what ``split`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.split_copy(x, 1)
(tensor([[0., 1.]]), tensor([[2., 3.]]))
""",
    "split_with_sizes_copy": """\
A copy of what ``split_with_sizes`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.split_with_sizes_copy(x, (1, 1))
(tensor([[0., 1.]]), tensor([[2., 3.]]))
""",
    "squeeze_copy": """A copy of what ``squeeze`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.squeeze_copy(x[:1])
tensor([0., 1.])
""",
    "t_copy": """A copy of what ``t`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.t_copy(x)
tensor([[0., 2.],
        [1., 3.]])
""",
    "transpose_copy": """A copy of what ``transpose`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.transpose_copy(x, 0, 1)
tensor([[0., 2.],
        [1., 3.]])
""",
    "unbind_copy": """A copy of what ``unbind`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.unbind_copy(x)
(tensor([0., 1.]), tensor([2., 3.]))
""",
    "unfold_copy": """A copy of what ``unfold`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.unfold_copy(x[0], 0, 1, 1)
tensor([[0.],
        [1.]])
""",
    "unsqueeze_copy": """A copy of what ``unsqueeze`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.unsqueeze_copy(x, 0)
tensor([[[0., 1.],
         [2., 3.]]])
""",
    "view_copy": """A copy of what ``view`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.view_copy(x, (4,))
tensor([0., 1., 2., 3.])
""",
    "view_as_complex_copy": """A copy of what ``view_as_complex`` gives; the arguments are the same.

>>> x = eg.arange(4.0).view(2, 2)
>>> eg.view_as_complex_copy(x)
tensor([0.+1.j, 2.+3.j])
""",
    "view_as_real_copy": """A copy of what ``view_as_real`` gives; the arguments are the same.

>>> eg.view_as_real_copy(eg.tensor([1 + 2j]))
tensor([[1., 2.]])
""",
}
