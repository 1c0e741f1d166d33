"""Optimizers and schedules."""

from typing import TYPE_CHECKING

from evergrad.keywords import suggest_keywords
from evergrad.lazy import known_names
from evergrad.optim import lr_scheduler, swa_utils
from evergrad.optim.adadelta import Adadelta
from evergrad.optim.adafactor import Adafactor
from evergrad.optim.adagrad import Adagrad
from evergrad.optim.adam import Adam, AdamW
from evergrad.optim.adamax import Adamax
from evergrad.optim.asgd import ASGD
from evergrad.optim.lbfgs import LBFGS
from evergrad.optim.lion import Lion
from evergrad.optim.muon import Muon
from evergrad.optim.nadam import NAdam
from evergrad.optim.optimizer import Optimizer
from evergrad.optim.radam import RAdam
from evergrad.optim.reference import DOCS, SCHEDULES
from evergrad.optim.rmsprop import RMSprop
from evergrad.optim.rprop import Rprop
from evergrad.optim.sgd import SGD
from evergrad.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]

for _name, _doc in DOCS.items():
    globals()[_name].__doc__ = _doc
for _name, _doc in SCHEDULES.items():
    getattr(lr_scheduler, _name).__doc__ = _doc
suggest_keywords(*(globals()[_name] for _name in DOCS if _name != "Optimizer"))
suggest_keywords(*(getattr(lr_scheduler, _name) for _name in SCHEDULES))

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
