"""Sparse gradients that a call leaves behind.

A session records the gradient of a sparse lookup as a dense one, of which no element is computed
where optimizers apply it by rows. What is left in ``.grad`` at the end is made sparse again, as in
eager code: its parts, the rows and their numbers, are outputs of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.compound import Compound
from evergrad.core.op import TABLE
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Var
from evergrad.extension import ExtensionPoint
from evergrad.memory.ledger import GRADIENT
from evergrad.ops.rows.indexing.index import INDEX_SUM
from evergrad.ops.rows.movement.joining import cat

if TYPE_CHECKING:
    from evergrad.compiler.frontend.session import Session

_ADD, _COPIES = TABLE["add"], (TABLE["clone"], TABLE["detach"])

_sparse_rows: ExtensionPoint[[Tensor, Tensor, int], Compound] = ExtensionPoint("sparse_rows")


class PartsOutput:
    """A gradient that is made of outputs of the graph, by their indices."""

    __slots__ = ("build", "indices")

    def __init__(self, gradient: Compound, first: int) -> None:
        self.indices: range = range(first, first + len(gradient.parts()))
        self.build: Callable[..., Tensor] = partial(_built, gradient._type.shape[0])

    def make(self, computed: Sequence[Any] | Mapping[int, Tensor]) -> Tensor:
        """The gradient of a run, of what it has computed."""
        return self.build(*(computed[index] for index in self.indices))


def _built(count: int, places: Tensor, elements: Tensor) -> Tensor:
    for part in (places, elements):
        part._storage.tag(GRADIENT)
    return _sparse_rows(places, elements, count)


def make_sparse(session: Session) -> None:
    """Let the gradients of sparse lookups that are left behind be sparse, where the call has
    computed them by lookups alone."""
    if session.is_off or not session.sparse_weights:
        return
    producers = {out: eqn for eqn in session.equations for out in eqn.outs}
    for weight in session.sparse_weights:
        grad = weight._grad
        if grad is None or isinstance(grad, Compound) or id(weight) in session.unlike_rows:
            continue
        found = _lookups(grad._storage.value, producers) if grad._view is None else None
        if found:
            weight._grad = _as_rows(found, weight)


def _lookups(value: Any, producers: dict[Var, Equation]) -> list[Equation] | None:
    """The equations of which a gradient is the sum, if each adds up the rows of one lookup."""
    eqn = producers.get(value) if isinstance(value, Var) else None
    if eqn is None:
        return None
    if eqn.op in _COPIES:
        return _lookups(eqn.args[0], producers)
    if eqn.op is _ADD:
        parts = [_lookups(arg, producers) for arg in eqn.args]
        return None if None in parts else [e for part in parts for e in part or ()]
    is_lookup = eqn.op is INDEX_SUM and len(eqn.args) == 2 and not eqn.attrs["start"]
    return [eqn] if is_lookup and all(isinstance(arg, Var) for arg in eqn.args) else None


def _as_rows(lookups: Sequence[Equation], weight: Tensor) -> Tensor:
    """The rows of lookups one after the other, as a sparse gradient."""
    pairs = [[fresh(arg, arg.type) for arg in eqn.args] for eqn in lookups]
    elements = [rows.reshape(-1, *weight._type.shape[1:]) for rows, _ in pairs]
    places = [index.reshape(1, -1).to(dtypes.int64) for _, index in pairs]
    if len(lookups) > 1:
        elements, places = [cat(elements)], [cat(places, 1)]
    return _sparse_rows(places[0], elements[0], weight._type.shape[0])
