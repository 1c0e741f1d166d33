"""Optimizers and schedules."""

from evergrad.optim import lr_scheduler
from evergrad.optim.adam import Adam, AdamW
from evergrad.optim.optimizer import Optimizer
from evergrad.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
