"""The size of the op matrix, printed at the end of a run."""

from __future__ import annotations

from typing import Any

from evergrad.core.op import TABLE
from evergrad.testing.samples.table import all_samples


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell how many rows, samples and checks there were."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if report.when == "call" and "matrix/" in report.nodeid
    ]
    if not reports:
        return
    rows = sum(row.family != "custom" for row in TABLE.values())
    samples = sum(map(len, all_samples().values()))
    terminalreporter.section("op matrix")
    terminalreporter.line(f"{rows} rows, {samples} samples, {len(reports)} checks run")
