"""Samples of products with packed weights."""

from __future__ import annotations

from evergrad.ops.rows.packed_linear import PANEL, packed_linear
from evergrad.testing.samples import Array, normal, sample


def _enter(rows: tuple[int, ...], inputs: int, outputs: int, label: str) -> None:
    def expected(x: Array, weight: Array) -> Array:
        found: Array = x @ weight.swapaxes(1, 2).reshape(-1, inputs)[:outputs].T
        return found

    weight = normal(-(-outputs // PANEL), inputs, PANEL, seed=1)
    sample(
        "packed_linear", lambda ns, x, packed: packed_linear(x, packed, outputs),
        normal(*rows, inputs), weight, reference=expected, torch=False, dtypes=("float32",),
        label=label,
    )  # fmt: skip


_enter((1,), 9, 70, "one-row")
_enter((2, 7), 5, 32, "tiles-of-rows")
_enter((3,), 8, 1, "one-output")
