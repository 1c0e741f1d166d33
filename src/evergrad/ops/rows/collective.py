"""Rows that communicate: each is a linear map from the tensors of all processes to those of all.

The derivative of such a row is its transpose as a map of all processes together: the objective of
a program of several processes is the *sum of their losses*. So the transpose of ``all_reduce`` is
``all_reduce``, that of ``all_gather`` is ``reduce_scatter``, that of ``broadcast`` a reduction to
its source. ``parallel_copy`` and ``parallel_reduce`` are for the other convention, in which all
processes compute the same loss and it counts once (tensor parallel layers): there a value that all
have in common passes on unchanged, and its cotangents are summed, or the other way round.

The rows know a group of processes by its name and size; :mod:`evergrad.distributed` evaluates them.
A group of one process has the name ``""``. ``label`` is what errors call the tensor. Results are
received in the memory given by ``out``: a compiled program receives in its planned memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.dtypes import int64
from evergrad.core.families import linear, opaque
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import AutocastPolicy, numpy_evaluates
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.extension import ExtensionPoint

_communicate: ExtensionPoint[..., Array] = ExtensionPoint("communicate")

_FACTS: dict[str, Any] = {
    "emit": numpy_evaluates("processes communicate"),
    "autocast": AutocastPolicy.KEEP,
    "communicates": True,
}


def _same_type(x: TensorType, **attrs: object) -> TensorType:
    return x


def _same_batch(
    op: Op, args: Sequence[Tensor], dims: Sequence[int | None], **attrs: object
) -> object:
    """Every element is treated alike, so a batch is communicated as it is."""
    return bind(op, *args, **attrs), dims[0]


def _evaluated(kind: str, alone: Callable[[Array], Array] = lambda x: x) -> Callable[..., Array]:
    """The evaluation of a row; ``alone`` gives its result, or a view of it, in a group of one."""

    def evaluate(
        x: Array, *, group: str, size: int, out: Array | None = None, **attrs: object
    ) -> Array:
        if size > 1:
            return _communicate(kind, x, out, group=group, **attrs)
        return _copied(alone(x), out)

    return evaluate


def _copied(x: Array, out: Array | None) -> Array:
    if out is None:
        return x.copy()
    np.copyto(out, x)
    return out


# -- maps of equal types ------------------------------------------------------------------------


def _map(name: str, kind: str, transpose: Callable[[], Op], doc: str) -> Op:
    """A linear row whose results have the types of its arguments; its transpose is another."""
    return linear(
        name, _evaluated(kind), _same_type, lambda g, x, **attrs: bind(transpose(), g, **attrs),
        batch=_same_batch, takes_out=True, doc=doc, **_FACTS,
    )  # fmt: skip


ALL_REDUCE: Op = _map(
    "all_reduce", "all_reduce", lambda: ALL_REDUCE,
    "The sum (or mean) over the processes, for all of them.",
)  # fmt: skip
BROADCAST: Op = _map(
    "broadcast", "broadcast", lambda: REDUCE, "The tensor of one process, for all of them."
)
REDUCE: Op = _map(
    "reduce", "reduce", lambda: BROADCAST,
    "The sum over the processes for one of them, zeros for the others.",
)  # fmt: skip
PARALLEL_REDUCE: Op = _map(
    "parallel_reduce", "all_reduce", lambda: PARALLEL_COPY,
    "The sum over the processes, whose cotangent all of them have.",
)  # fmt: skip
PARALLEL_COPY: Op = linear(
    "parallel_copy", lambda x, group, size, out=None: _copied(x, out), _same_type,
    lambda g, x, **attrs: bind(PARALLEL_REDUCE, g, **attrs), batch=_same_batch, takes_out=True,
    doc="A value that all processes have, whose cotangents are summed over them.",
    **{**_FACTS, "communicates": False},
)  # fmt: skip
EXTREME: Op = opaque(
    "all_reduce_extreme", _evaluated("all_reduce"), _same_type, NONDIFFERENTIABLE,
    batch=_same_batch, upcast=False, takes_out=True,
    doc="The product, or the least or greatest value of the processes, for all of them.", **_FACTS,
)  # fmt: skip


# -- one dimension more or less -----------------------------------------------------------------


def _all_gather_type(x: TensorType, *, group: str, size: int, label: str = "") -> TensorType:
    return tensor_type((size, *x.shape), x.dtype)


def _reduce_scatter_type(x: TensorType, *, group: str, size: int, label: str = "") -> TensorType:
    if not x.shape or x.shape[0] != size:
        raise ValueError(
            f"reduce_scatter of {x} over {size} processes: the first dimension differs"
        )
    return tensor_type(x.shape[1:], x.dtype)


ALL_GATHER: Op = linear(
    "all_gather", _evaluated("all_gather", lambda x: x[None]), _all_gather_type,
    lambda g, x, **attrs: bind(REDUCE_SCATTER, g, **attrs), takes_out=True,
    doc="The tensors of all processes, stacked.", **_FACTS,
)  # fmt: skip
REDUCE_SCATTER: Op = linear(
    "reduce_scatter", _evaluated("reduce_scatter", lambda x: x[0]), _reduce_scatter_type,
    lambda g, x, **attrs: bind(ALL_GATHER, g, **attrs), takes_out=True,
    doc="The sum over the processes; each gets one entry of the first dimension.", **_FACTS,
)  # fmt: skip


# -- parts for each process ---------------------------------------------------------------------


def _all_to_all_type(
    x: TensorType, *, received: tuple[int, ...], sent: tuple[int, ...], group: str, size: int
) -> TensorType:
    return tensor_type((sum(received), *x.shape[1:]), x.dtype)


def _all_to_all_transpose(
    g: Tensor, x: Tensor, *, received: object, sent: object, **attrs: object
) -> object:
    return bind(ALL_TO_ALL, g, received=sent, sent=received, **attrs)


ALL_TO_ALL: Op = linear(
    "all_to_all", _evaluated("all_to_all"), _all_to_all_type, _all_to_all_transpose,
    takes_out=True,
    doc="Rows for each process, exchanged for the rows that each has for this one.", **_FACTS,
)  # fmt: skip


# -- in the background --------------------------------------------------------------------------


def _start_type(
    x: TensorType, *, reduction: str, group: str, size: int, label: str = ""
) -> tuple[TensorType, TensorType]:
    return x, tensor_type((), int64)


def _start(
    x: Array, *, out: tuple[Array, Array] | None = None, **attrs: object
) -> tuple[Array, Array]:
    buffer, token = (np.empty_like(x, order="C"), np.empty((), np.int64)) if out is None else out
    np.copyto(buffer, x)
    token[...] = _start_communication(buffer, **attrs)
    return buffer, token


def _wait_type(buffer: TensorType, token: TensorType) -> TensorType:
    return buffer


def _wait(buffer: Array, token: Array, out: Array | None = None) -> Array:
    _finish_communication(int(token))
    return _copied(buffer, out)


_start_communication: ExtensionPoint[..., int] = ExtensionPoint("start_communication")
_finish_communication: ExtensionPoint[[int], None] = ExtensionPoint("finish_communication")

START_ALL_REDUCE: Op = opaque(
    "all_reduce_start", _start, _start_type, NONDIFFERENTIABLE, upcast=False, outputs=2,
    takes_out=True,
    doc="Start a reduction in the background, in a buffer; the second result is a token to wait "
    "with.", **_FACTS,
)  # fmt: skip
WAIT: Op = opaque(
    "all_reduce_wait", _wait, _wait_type, NONDIFFERENTIABLE, upcast=False, takes_out=True,
    doc="The result of a reduction that was started, once it is complete.", **_FACTS,
)  # fmt: skip
