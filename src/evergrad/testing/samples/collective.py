"""Samples of rows that communicate, for a group of one process; larger groups need a launcher and
are checked in tests/distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.op import TABLE
from evergrad.testing.samples import Array, complex_normal, normal, sample

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor

__all__: list[str] = []  # samples are registered, nothing is exported


def _enter(row: str, x: Array, reference: Any, **attrs: object) -> None:
    sample(row, lambda ns, x: bind(TABLE[row], x, group="", size=1, **attrs), x, torch=False,
           reference=reference)  # fmt: skip


def _same(x: Array) -> Array:
    return x


for array in (normal(3, 4), complex_normal(2), normal(0, 2), normal()):
    _enter("all_reduce", array, _same, reduction="SUM")
    _enter("all_reduce_extreme", array, _same, reduction="MAX")
    _enter("broadcast", array, _same, root=0)
    _enter("reduce", array, _same, root=0)
    _enter("parallel_copy", array, _same)
    _enter("parallel_reduce", array, _same)
    _enter("all_gather", array, lambda x: np.asarray(x)[None])
    _enter("reduce_scatter", array[None], lambda x: x[0])
_enter("all_reduce", normal(5), _same, reduction="AVG")


def _started(x: Tensor, reduction: str) -> object:
    started = bind(TABLE["all_reduce_start"], x, group="", size=1, reduction=reduction)
    return bind(TABLE["all_reduce_wait"], *started)


for row in ("all_reduce_start", "all_reduce_wait"):
    sample(row, lambda ns, x: _started(x, "AVG"), normal(3, 2), torch=False, smooth=False,
           reference=_same)  # fmt: skip
_enter("all_to_all", normal(3, 2), _same, received=(3,), sent=(3,))
