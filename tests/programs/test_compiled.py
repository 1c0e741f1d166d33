"""Every program gives the same losses when its modules and optimizer steps are compiled.

Each module that a program calls is compiled as ``evergrad.compile(model)`` would, and so is the
step of each optimizer; the program itself is left as it is. Losses are compared with the eager run
in float64.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partialmethod
from typing import Any

import pytest

import evergrad
from evergrad.compiler.api import Compiled
from evergrad.nn import Module
from evergrad.optim import Optimizer

from .test_programs import FLOAT64, NOT_IN_FLOAT64, PROGRAMS, outcome

# The modules and steps that are no single program, and why: how reasons begin.
RUN_BY_PYTHON = {
    "actor_critic": {"Policy": "a Categorical that the function makes is returned"},
    "gcn": {"GCN": "an argument is sparse or nested"},
    "beta_vae": {"Autoencoder": "a Independent that the function makes is returned"},
    "gru_seq2seq": {"Translator": "a path is taken for the first time: "},
    "hooks": {"Sequential": "a hook is called where a result is differentiated"},
    "mixture_of_experts": {"Mixture": "a path is taken for the first time: "},
    "word_language_model": {"TransformerModel": "reference in "},
    "weight_averaging": {"AveragedModel": "a path is taken for the first time: "},
    "maml": {"Sequential": "a tensor from outside that the function reads has a history"},
    "seq2seq": {"Encoder": "a path is taken for the first time: "},
    "timeseries_lbfgs": {"LBFGS": "the value of a traced tensor was read "},
}

# In float32 compiled and eager sums differ by their order, and dot products of bfloat16 pairs add
# two at a time. Under autocast such a difference moves a value to the neighbouring bfloat16 now and
# then, 4e-3 away, and in later steps the values computed from it once more: only the first steps
# agree closer, as one such value is one of many in a loss.
FEW_MOVED = 6e-4
BFLOAT16 = 8e-3
FIRST_STEPS = 5


# Programs without a module or a step that could be compiled whole; and SparseAdam, whose gradients
# a compiled lookup makes dense.
NOT_COMPILED = {"ensemble_vmap", "kmeans", "lbfgs_logistic", "word2vec"}


class Everything:
    """Compiles the calls of modules and the steps of optimizers while it is in force. What a
    compiled function calls is as it was: code of the tests is none of it."""

    def __init__(self) -> None:
        self.compiled: weakref.WeakKeyDictionary[Any, Compiled] = weakref.WeakKeyDictionary()
        self.programs = 0
        self.reasons: dict[str, str] = {}
        self.methods: list[tuple[type, str, Any]] = []

    def patch(self, kind: type, name: str) -> None:
        self.methods.append((kind, name, kind.__dict__[name]))

    def begin(self) -> None:
        for kind, name, method in self.methods:
            made = partialmethod(lambda owner, *a, m=method, **k: self.run(owner, m, *a, **k))
            setattr(kind, name, made)

    def end(self) -> None:
        for kind, name, method in self.methods:
            setattr(kind, name, method)

    def run(self, owner: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.end()
        try:
            return self.run_compiled(owner, function, *args, **kwargs)
        finally:
            self.begin()

    def run_compiled(self, owner: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        if owner not in self.compiled:
            reference = weakref.ref(owner)
            self.compiled[owner] = Compiled(lambda *a, **k: function(reference(), *a, **k))
        compiled = self.compiled[owner]
        result = compiled(*args, **kwargs)
        call = compiled.last_call
        assert call is not None
        self.programs += call.kind == "whole"
        if call.kind != "whole":
            self.reasons[type(owner).__name__] = str(call.reason)
        return result


@pytest.fixture
def everything() -> Iterator[Everything]:
    made = Everything()
    made.patch(Module, "__call__")
    for kind in _optimizers(Optimizer):
        if "step" in kind.__dict__:
            made.patch(kind, "step")
    made.begin()
    yield made
    made.end()
    evergrad.set_default_dtype(evergrad.float32)


def _optimizers(kind: type) -> list[type]:
    return [kind, *(found for sub in kind.__subclasses__() for found in _optimizers(sub))]


def assert_reasons(found: dict[str, str], expected: dict[str, str]) -> None:
    assert found.keys() == expected.keys()
    for name, reason in found.items():
        assert reason.startswith(expected[name])


@pytest.mark.filterwarnings("ignore:.*is not one compiled program:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*runs eagerly:RuntimeWarning")
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in NOT_COMPILED])
def test_losses_are_those_of_eager_evaluation(program: str, everything: Everything) -> None:
    kind, tolerance = "float64", FLOAT64
    if program in NOT_IN_FLOAT64:
        kind, tolerance = "float32", BFLOAT16
    losses, drawn = outcome(program, evergrad, kind)
    assert everything.programs
    assert_reasons(everything.reasons, RUN_BY_PYTHON.get(program, {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(everything, "run", lambda owner, function, *a, **k: function(owner, *a, **k))
        expected, expected_drawn = outcome(program, evergrad, kind)
    assert losses == pytest.approx(expected, rel=tolerance, abs=1e-12)
    first = expected[:FIRST_STEPS]
    assert losses[:FIRST_STEPS] == pytest.approx(first, rel=min(tolerance, FEW_MOVED), abs=1e-12)
    assert drawn == expected_drawn
