"""Functions that draw random numbers."""

DOCS = {
    "rand": """Uniform random numbers in ``[0, 1)``.

Args:
    size: numbers, or one sequence of them
    generator: source of randomness, that of the thread by default
    dtype: floating-point or complex type
    requires_grad: whether ``backward`` accumulates a gradient for it

With the same seed the numbers are PyTorch's (``manual_seed``).

>>> _ = eg.manual_seed(0)
>>> eg.rand(3)
tensor([0.4963, 0.7682, 0.0885])
""",
    "randn": """Random numbers of the standard normal distribution.

Args:
    size: numbers, or one sequence of them
    generator: source of randomness, that of the thread by default
    dtype: floating-point or complex type
    requires_grad: whether ``backward`` accumulates a gradient for it

With the same seed the numbers are PyTorch's.

>>> _ = eg.manual_seed(0)
>>> eg.randn(3)
tensor([ 1.5410, -0.2934, -2.1788])
""",
    "randint": """Random integers from ``low`` (0 by default) up to, not including, ``high``.

``randint(high, size)`` or ``randint(low, high, size)``; int64 by default.

>>> _ = eg.manual_seed(0)
>>> eg.randint(0, 10, (4,))
tensor([4, 9, 3, 0])
""",
    "randperm": """The numbers 0 to ``n - 1`` in random order.

>>> _ = eg.manual_seed(0)
>>> eg.randperm(4)
tensor([0, 1, 3, 2])
""",
    "rand_like": """Uniform random numbers in the shape and type of another tensor.

>>> eg.rand_like(eg.ones(2, 3)).shape
evergrad.Size([2, 3])
""",
    "randn_like": """Normal random numbers in the shape and type of another tensor.

>>> eg.randn_like(eg.ones(2, 3)).shape
evergrad.Size([2, 3])
""",
    "randint_like": """Random integers in the shape and type of another tensor.

>>> eg.randint_like(eg.ones(2, 3), 5).shape
evergrad.Size([2, 3])
""",
    "normal": """Normal random numbers of given means and standard deviations.

Args:
    mean: tensor or number
    std: tensor or number
    size: shape, if both are numbers
    generator: source of randomness

>>> _ = eg.manual_seed(0)
>>> eg.normal(eg.tensor([0.0, 100.0]), eg.tensor([1.0, 1.0]))
tensor([ 1.5410, 99.7066])
""",
    "bernoulli": """1 with a given probability, else 0, in the type of the input.

Args:
    input: probabilities, unless ``p`` gives one for all
    p: probability
    generator: source of randomness

>>> eg.bernoulli(eg.tensor([0.0, 1.0]))
tensor([0., 1.])
""",
    "multinomial": """Indices drawn by weights, for each row.

Args:
    input: weights (N) or (M, N), not negative, need not add up to 1
    num_samples: how many to draw from each row
    replacement: whether an index can be drawn again
    generator: source of randomness

>>> eg.multinomial(eg.tensor([0.0, 1.0, 0.0]), 1)
tensor([1])
""",
    "poisson": """Random numbers of Poisson distributions with the given rates.

>>> eg.poisson(eg.tensor([0.0, 0.0]))
tensor([0., 0.])
""",
    "binomial": """How many of ``count`` trials succeed, each with probability ``prob``.

>>> eg.binomial(eg.tensor([5.0]), eg.tensor([1.0]))
tensor([5.])
""",
    "dropout": """Elements set to zero with probability ``p``, the others scaled by ``1 / (1 - p)``.

Args:
    input: any floating-point tensor
    p: probability
    train: whether to do so at all

:func:`nn.functional.dropout` has defaults.

>>> eg.dropout(eg.ones(3), 0.5, False)
tensor([1., 1., 1.])
""",
}
