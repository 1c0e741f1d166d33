"""What is looked at before the first step: whether every parameter gets a sound gradient."""

from __future__ import annotations

import copy

import evergrad as eg
from evergrad import nn
from evergrad.autograd.audit import Audit, audit
from evergrad.core.rng.default_generator import using_generator
from evergrad.errors import GradientError
from evergrad.train.state import TrainingState, stream
from evergrad.train.step import precision

_SMALL = 0.02


def audit_gradients(state: TrainingState) -> Audit:
    """Do one backward pass on a copy of the model and look at all gradients.

    Weights that begin at zero (gates, last layers) would hide what stands behind them, so the copy
    gets small numbers there. A gradient that is missing or not finite is an error.
    """
    model = copy.deepcopy(state.model)
    with using_generator(stream(state.config.seed)):
        _fill_zeros(model)
        with precision(state.config):
            loss = state.task.loss(model, *state.task.batch(0))
        loss.backward()
    found = audit(model)
    if any(finding.problem != "zero" for finding in found.findings):
        raise GradientError(str(found))
    return found


def _fill_zeros(model: nn.Module) -> None:
    with eg.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(0.0, _SMALL)
