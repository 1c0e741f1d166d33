"""Losses, as functions."""

_REDUCTION = """    reduction: ``"mean"``, ``"sum"`` or ``"none"``
"""

DOCS = {
    "F.cross_entropy": """The classification loss: ``-log softmax(input)[target]``.

Args:
    input: scores (C), (B, C) or (B, C, ...), not probabilities
    target: classes (B) or (B, ...), int64; or probabilities of the shape of ``input``
    weight: (C), what each class counts
    ignore_index: class that does not count
    label_smoothing: share of the target that is spread over all classes
"""
    + _REDUCTION
    + """
With ``"mean"`` the sum is divided by the weights of the targets.

>>> F.cross_entropy(eg.tensor([[2.0, 0.0], [0.0, 1.0]]), eg.tensor([0, 1]))
tensor(0.2201)
""",
    "F.nll_loss": """The negative of the log probability of the target class.

Args:
    input: log probabilities (B, C) or (B, C, ...), as :func:`log_softmax` gives
    target: classes (B) or (B, ...)
    weight: (C), what each class counts
    ignore_index: class that does not count
"""
    + _REDUCTION
    + """
>>> F.nll_loss(eg.log_softmax(eg.zeros(1, 2), dim=1), eg.tensor([0]))
tensor(0.6931)
""",
    "F.mse_loss": """The squared error ``(input - target)^2``.

Args:
    input: predictions
    target: of the same shape
"""
    + _REDUCTION
    + """
>>> F.mse_loss(eg.tensor([1.0, 2.0]), eg.tensor([1.0, 4.0]))
tensor(2.)
""",
    "F.l1_loss": """The absolute error ``|input - target|``.

Args:
    input: predictions
    target: of the same shape
"""
    + _REDUCTION
    + """
>>> F.l1_loss(eg.tensor([1.0, 2.0]), eg.tensor([1.0, 4.0]))
tensor(1.)
""",
    "F.smooth_l1_loss": """\
The squared error below ``beta`` (halved and divided by it), the absolute above.

>>> F.smooth_l1_loss(eg.tensor([0.0, 0.0]), eg.tensor([0.5, 3.0]), reduction="none")
tensor([0.1250, 2.5000])
""",
    "F.huber_loss": """Half of the squared error below ``delta``, ``delta (|e| - delta / 2)`` above.

>>> F.huber_loss(eg.tensor([0.0, 0.0]), eg.tensor([0.5, 3.0]), reduction="none")
tensor([0.1250, 2.5000])
""",
    "F.binary_cross_entropy": """``-(t log p + (1 - t) log(1 - p))`` of probabilities.

Args:
    input: probabilities in [0, 1]; their logarithms are clamped at -100
    target: of the same shape, in [0, 1]
    weight: what each element counts
"""
    + _REDUCTION
    + """
>>> F.binary_cross_entropy(eg.tensor([0.9, 0.1]), eg.tensor([1.0, 0.0]))
tensor(0.1054)
""",
    "F.binary_cross_entropy_with_logits": """Binary cross entropy of scores, without overflow.

Args:
    input: scores, of which sigmoid would give probabilities
    target: of the same shape, in [0, 1]
    weight: what each element counts
    pos_weight: what positive targets count
"""
    + _REDUCTION
    + """
>>> F.binary_cross_entropy_with_logits(eg.tensor([0.0, 100.0]), eg.tensor([1.0, 1.0]))
tensor(0.3466)
""",
    "F.kl_div": """The Kullback-Leibler divergence ``t (log t - input)``.

Args:
    input: log probabilities
    target: probabilities, or their logarithms if ``log_target``
    reduction: ``"batchmean"`` is the mathematical mean; ``"mean"`` divides by all elements
    log_target: whether ``target`` is logarithms

>>> half = eg.tensor([[0.5, 0.5]])
>>> F.kl_div(half.log(), half, reduction="batchmean")
tensor(0.)
""",
    "F.poisson_nll_loss": """``exp(input) - target * input``: counts of a Poisson distribution.

>>> F.poisson_nll_loss(eg.tensor([0.0]), eg.tensor([1.0]))
tensor(1.)
""",
    "F.gaussian_nll_loss": """``(log var + (input - target)^2 / var) / 2``: a normal distribution.

>>> F.gaussian_nll_loss(eg.tensor([0.0]), eg.tensor([1.0]), eg.tensor([1.0]))
tensor(0.5000)
""",
    "F.hinge_embedding_loss": """``x`` for targets 1, ``max(0, margin - x)`` for targets -1.

>>> F.hinge_embedding_loss(eg.tensor([0.5, 0.5]), eg.tensor([1.0, -1.0]))
tensor(0.5000)
""",
    "F.margin_ranking_loss": """``max(0, -target (x1 - x2) + margin)``

>>> F.margin_ranking_loss(eg.tensor([1.0]), eg.tensor([2.0]), eg.tensor([1.0]))
tensor(1.)
""",
    "F.soft_margin_loss": """``log(1 + exp(-target * input))`` for targets 1 and -1.

>>> F.soft_margin_loss(eg.tensor([0.0]), eg.tensor([1.0]))
tensor(0.6931)
""",
    "F.cosine_embedding_loss": """\
``1 - cos(x1, x2)`` for targets 1, ``max(0, cos - margin)`` for -1.

>>> F.cosine_embedding_loss(eg.ones(1, 2), eg.ones(1, 2), eg.tensor([-1.0]), margin=0.5)
tensor(0.5000)
""",
    "F.triplet_margin_loss": """\
``max(0, |a - p| - |a - n| + margin)``: anchor nearer to p than to n.

>>> F.triplet_margin_loss(eg.zeros(1, 2), eg.zeros(1, 2), eg.zeros(1, 2))
tensor(1.)
""",
    "F.multi_margin_loss": """\
``sum_j max(0, margin - x[y] + x[j])`` over the wrong classes, by their number.

>>> F.multi_margin_loss(eg.tensor([[1.0, 0.5]]), eg.tensor([0]))
tensor(0.2500)
""",
    "F.multilabel_soft_margin_loss": """Binary cross entropy of scores, averaged over the labels.

>>> F.multilabel_soft_margin_loss(eg.zeros(1, 2), eg.tensor([[1.0, 0.0]]))
tensor(0.6931)
""",
    "F.ctc_loss": """Connectionist temporal classification: the sum over all alignments.

Args:
    log_probs: (T, B, C), as :func:`log_softmax` gives
    targets: (B, S), or all targets joined
    input_lengths: (B)
    target_lengths: (B)
    blank: class of the blank
"""
    + _REDUCTION
    + """    zero_infinity: whether impossible targets count zero

>>> scores = eg.zeros(4, 1, 3).log_softmax(2)
>>> F.ctc_loss(scores, eg.tensor([[1, 2]]), eg.tensor([4]), eg.tensor([2]))
tensor(0.8432)
""",
}
