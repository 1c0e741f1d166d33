"""The table itself: every row is documented, sampled, and says what its derivative is."""

from __future__ import annotations

import pytest

import evergrad  # noqa: F401 - fills the table
from evergrad.core.op import NONDIFFERENTIABLE, TABLE, Op
from evergrad.testing.samples import all_samples

from .checks import SAMPLES

# Rows that users define at run time are not the table's.
ROWS = [op for _, op in sorted(TABLE.items()) if op.family != "custom"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_is_complete(row: Op) -> None:
    assert all_samples().get(row.name), (
        f"the row {row.name!r} has no sample: add one in evergrad/testing/samples"
    )
    assert row.doc.strip(), f"the row {row.name!r} has no doc"
    assert callable(row.vjp) or row.vjp is NONDIFFERENTIABLE, (
        f"the row {row.name!r} has neither a derivative nor says NONDIFFERENTIABLE"
    )
    assert row.family in ("elementwise", "linear", "bilinear", "reduction", "opaque")
    assert not row.differentiable or row.jvp is not None or row.family == "opaque"


def test_samples_name_rows_of_the_table() -> None:
    assert sorted(set(all_samples()) - set(TABLE)) == []


def test_samples_of_differentiable_rows_reach_the_derivative() -> None:
    """A row with a derivative has a sample at which the derivative is checked."""
    from evergrad.testing.checks import has_derivative

    checked = {sample.row for sample in SAMPLES if has_derivative(sample)}
    unchecked = [row.name for row in ROWS if row.differentiable and row.name not in checked]
    assert unchecked == []


def test_labels_are_unique() -> None:
    assert len({str(sample) for sample in SAMPLES}) == len(SAMPLES)
