"""The docstrings of optimizers and schedules: formulas, arguments, an example that runs."""

_PARAMS = """
Args:
    params: tensors, pairs of name and tensor, or dictionaries with options of their own
"""
_COMMON = """    maximize: whether to climb in place of descending
    foreach: accepted; all parameters are updated in one kernel anyhow
"""
_STEP = """
>>> w = nn.Parameter(eg.ones(2))
>>> optimizer = optim.{call}
>>> (w * w).sum().backward()
>>> optimizer.step()
>>> w.detach()
{result}
"""


def _step(call: str, result: str) -> str:
    return _STEP.format(call=call, result=result)


DOCS = {
    "Optimizer": """The base of all optimizers: groups of parameters, and state for each of them.

``zero_grad()`` drops the gradients, ``step()`` changes the parameters by them, ``state_dict()`` and
``load_state_dict()`` save and restore.

>>> optimizer = optim.SGD([nn.Parameter(eg.ones(2))], lr=0.1)
>>> optimizer.param_groups[0]["lr"]
0.1
""",
    "SGD": "Gradient descent: ``v = momentum * v + (1 - dampening) * g``, ``p -= lr * v``.\n"
    + _PARAMS
    + """    lr: learning rate
    momentum: share of the step before
    dampening: how much less the gradient counts in the momentum
    weight_decay: factor of the parameter that is added to its gradient
    nesterov: whether to look ahead: ``g + momentum * v`` in place of ``v``
"""
    + _COMMON
    + _step("SGD([w], lr=0.1)", "tensor([0.8000, 0.8000])"),
    "Adam": "Steps scaled by running means: ``p -= lr * m / (sqrt(v) + eps)``.\n"
    + _PARAMS
    + """    lr: learning rate
    betas: decay of the running mean of the gradient ``m`` and of its square ``v``
    eps: added to the divisor
    weight_decay: factor of the parameter that is added to its gradient
    amsgrad: whether to use the largest ``v`` so far
    decoupled_weight_decay: whether decay acts as in :class:`AdamW`
"""
    + _COMMON
    + """
Both means are divided by ``1 - beta^t``, which corrects the bias of the first steps.
"""
    + _step("Adam([w], lr=0.1)", "tensor([0.9000, 0.9000])"),
    "AdamW": "Adam whose weight decay does not pass through the running means.\n"
    + _PARAMS
    + """    lr: learning rate
    betas: decay of the running means of the gradient and of its square
    eps: added to the divisor
    weight_decay: share ``lr * weight_decay`` by which parameters shrink at each step
    amsgrad: whether to use the largest mean square so far
"""
    + _COMMON
    + _step("AdamW([w], lr=0.1)", "tensor([0.8990, 0.8990])"),
    "NAdam": "Adam with Nesterov's look-ahead.\n"
    + _PARAMS
    + _step("NAdam([w], lr=0.1)", "tensor([0.8944, 0.8944])"),
    "RAdam": "Adam whose first steps are plain momentum, until the variance is estimated well.\n"
    + _PARAMS
    + _step("RAdam([w], lr=0.1)", "tensor([0.8000, 0.8000])"),
    "Adamax": "Adam with the running maximum of the gradient's magnitude as divisor.\n"
    + _PARAMS
    + _step("Adamax([w], lr=0.1)", "tensor([0.9000, 0.9000])"),
    "Adagrad": "Steps divided by the root of the sum of all squared gradients.\n"
    + _PARAMS
    + """    lr: learning rate
    lr_decay: the rate is divided by ``1 + steps * lr_decay``
    weight_decay: factor of the parameter that is added to its gradient
    initial_accumulator_value: the sum at first
    eps: added to the divisor
"""
    + _step("Adagrad([w], lr=0.1)", "tensor([0.9000, 0.9000])"),
    "Adadelta": "Steps scaled by the ratio of recent steps to recent gradients.\n"
    + _PARAMS
    + _step("Adadelta([w])", "tensor([0.9968, 0.9968])"),
    "RMSprop": "Steps divided by the root of the running mean of squared gradients.\n"
    + _PARAMS
    + """    lr: learning rate
    alpha: decay of the running mean
    eps: added to the divisor
    weight_decay: factor of the parameter that is added to its gradient
    momentum: share of the step before
    centered: whether the variance takes the place of the mean square
"""
    + _step("RMSprop([w], lr=0.1)", "tensor([5.9605e-08, 5.9605e-08])"),
    "Rprop": "Steps by the signs of the gradient alone; meant for whole batches.\n"
    + _PARAMS
    + _step("Rprop([w], lr=0.1)", "tensor([0.9000, 0.9000])"),
    "ASGD": "Gradient descent that averages the parameters from step ``t0`` on.\n"
    + _PARAMS
    + _step("ASGD([w], lr=0.1)", "tensor([0.8000, 0.8000])"),
    "Adafactor": "Adam for large matrices: its state has one number for each row and column.\n"
    + _PARAMS
    + _step("Adafactor([w], lr=0.1)", "tensor([0.9000, 0.9000])"),
    "Muon": """Momentum of matrices, orthogonalised before each step.

Args:
    params: matrices; use AdamW for embeddings, norms and biases
    lr: learning rate
    weight_decay: share by which parameters shrink at each step
    momentum: share of the step before
    nesterov: whether to look ahead
    ns_coefficients: of the Newton-Schulz iteration
    ns_steps: its number of iterations

>>> w = nn.Parameter(eg.ones(2, 2))
>>> optimizer = optim.Muon([w], lr=0.1)
>>> (w * w).sum().backward()
>>> optimizer.step()
>>> w.shape
evergrad.Size([2, 2])
""",
    "LBFGS": """A quasi-Newton method, with the curvature seen in the last steps.

Args:
    params: tensors
    lr: length of steps
    max_iter: iterations in one ``step``
    max_eval: evaluations in one ``step``
    tolerance_grad: stops below this gradient
    tolerance_change: stops below this change
    history_size: steps that are remembered
    line_search_fn: ``"strong_wolfe"`` or none

>>> w = nn.Parameter(eg.tensor([3.0]))
>>> optimizer = optim.LBFGS([w], line_search_fn="strong_wolfe")
>>> def closure():
...     optimizer.zero_grad()
...     loss = ((w - 1) ** 2).sum()
...     loss.backward()
...     return loss
>>> _ = optimizer.step(closure)
>>> abs(w.item() - 1) < 1e-4
True
""",
}
_RATES = """
>>> optimizer = optim.SGD([nn.Parameter(eg.ones(1))], lr=1.0)
>>> schedule = optim.lr_scheduler.{call}
>>> rates = []
>>> for _ in range(4):
...     optimizer.step()
...     schedule.step()
...     rates.append(round(schedule.get_last_lr()[0], 4))
>>> rates
{result}
"""


def _rates(call: str, result: str) -> str:
    return _RATES.format(call=call, result=result)


SCHEDULES = {
    "LambdaLR": """The first rate times a function of the step number.

Args:
    optimizer: whose rates are changed
    lr_lambda: the function, or one for each group
    last_epoch: step to begin with
"""
    + _rates("LambdaLR(optimizer, lambda step: 0.5**step)", "[0.5, 0.25, 0.125, 0.0625]"),
    "StepLR": """Times ``gamma`` every ``step_size`` steps.

Args:
    optimizer: whose rates are changed
    step_size: steps between changes
    gamma: factor
    last_epoch: step to begin with
"""
    + _rates("StepLR(optimizer, step_size=2)", "[1.0, 0.1, 0.1, 0.01]"),
    "MultiStepLR": """Times ``gamma`` at each milestone.

Args:
    optimizer: whose rates are changed
    milestones: step numbers, rising
    gamma: factor
    last_epoch: step to begin with
"""
    + _rates("MultiStepLR(optimizer, [1, 3])", "[0.1, 0.1, 0.01, 0.01]"),
    "ExponentialLR": "Times ``gamma`` at every step.\n"
    + _rates("ExponentialLR(optimizer, 0.5)", "[0.5, 0.25, 0.125, 0.0625]"),
    "LinearLR": """From one fraction of the rate to another along a line: a warm-up.

Args:
    optimizer: whose rates are changed
    start_factor: fraction at first
    end_factor: fraction at the end
    total_iters: steps between them
    last_epoch: step to begin with
"""
    + _rates("LinearLR(optimizer, 0.2, total_iters=4)", "[0.4, 0.6, 0.8, 1.0]"),
    "ConstantLR": "A fraction of the rate until ``total_iters``, then the whole.\n"
    + _rates("ConstantLR(optimizer, 0.1, total_iters=2)", "[0.1, 1.0, 1.0, 1.0]"),
    "PolynomialLR": "A power of the remaining part, down to zero.\n"
    + _rates("PolynomialLR(optimizer, total_iters=4)", "[0.75, 0.5, 0.25, 0.0]"),
    "CosineAnnealingLR": """Half a cosine from the first rate down to ``eta_min``, and up again.

Args:
    optimizer: whose rates are changed
    T_max: steps of half a period
    eta_min: least rate
    last_epoch: step to begin with
"""
    + _rates("CosineAnnealingLR(optimizer, T_max=4)", "[0.8536, 0.5, 0.1464, 0.0]"),
    "CosineAnnealingWarmRestarts": "Half cosines, each ``T_mult`` times as long as the last.\n"
    + _rates("CosineAnnealingWarmRestarts(optimizer, T_0=2)", "[0.5, 1.0, 0.5, 1.0]"),
    "OneCycleLR": "One rise to ``max_lr`` and a long fall far below the first rate.\n"
    + _rates(
        "OneCycleLR(optimizer, max_lr=1.0, total_steps=8, cycle_momentum=False)",
        "[0.8193, 0.9719, 0.8117, 0.556]",
    ),
    "CyclicLR": "Up and down between two rates.\n"
    + _rates(
        "CyclicLR(optimizer, 0.0, 1.0, step_size_up=2, cycle_momentum=False)",
        "[0.5, 1.0, 0.5, 0.0]",
    ),
    "MultiplicativeLR": "The present rate times a function of the step number.\n"
    + _rates("MultiplicativeLR(optimizer, lambda step: 0.5)", "[0.5, 0.25, 0.125, 0.0625]"),
}
