"""The table itself: every row is documented, sampled, and says what its derivative is."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from evergrad.core.op import TABLE, Op
from evergrad.testing import samples
from evergrad.testing.checks import check_row
from evergrad.testing.samples import table
from evergrad.testing.samples.table import all_samples

from .checks import SAMPLES

# Rows that users define at run time are not the table's.
ROWS = [op for _, op in sorted(TABLE.items()) if op.family != "custom"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(row: Op) -> None:
    check_row(row)


def test_samples_name_rows_of_the_table() -> None:
    assert sorted(set(all_samples()) - set(TABLE)) == []


def test_labels_are_unique() -> None:
    assert len({str(sample) for sample in SAMPLES}) == len(SAMPLES)


def test_every_module_of_samples_is_listed() -> None:
    names = {path.stem for path in Path(samples.__file__).parent.glob("*.py")}
    listed = {name for name, value in vars(table).items() if isinstance(value, ModuleType)}
    assert names - {"__init__", "table"} == listed
