"""``evergrad doctor``: versions, processor, libraries, cache and extras, and whether they work."""

from __future__ import annotations

import json
import sys
from itertools import groupby

import click

from evergrad.cli.diagnosis import Finding, as_data, diagnose, is_healthy

_SIGNS = {"ok": ("ok", "green"), "missing": ("--", "yellow"), "broken": ("!!", "red")}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """Look at this machine: what evergrad runs on, and whether it works.

    Prints versions, the processor and its features, the libraries that multiply matrices, the cache
    of compiled kernels and the optional packages; then runs a tiny compiled program.

    \b
    Examples:
      evergrad doctor
      evergrad doctor --json > machine.json

    \b
    Exit codes: 0 if everything that is needed works (optional packages may be missing),
    1 if something needed is broken; the fix is printed.
    """
    findings = diagnose()
    if as_json:
        click.echo(json.dumps(as_data(findings), indent=1))
    else:
        click.echo(_told(findings))
    sys.exit(0 if is_healthy(findings) else 1)


def _told(findings: list[Finding]) -> str:
    width = max(len(finding.name) for finding in findings)
    lines = []
    for section, members in groupby(findings, key=lambda finding: finding.section):
        lines += ["", click.style(section, bold=True)]
        lines += [_line(finding, width) for finding in members]
    return "\n".join([*lines[1:], "", _verdict(findings)])


def _line(finding: Finding, width: int) -> str:
    sign, colour = _SIGNS[finding.state]
    line = f"  {click.style(sign, fg=colour)}  {finding.name.ljust(width)}  {finding.value}"
    return f"{line}\n      {' ' * width}  fix: {finding.fix}" if finding.fix else line


def _verdict(findings: list[Finding]) -> str:
    broken = [finding for finding in findings if finding.state == "broken"]
    if not broken:
        return click.style("Everything that is needed works.", fg="green")
    names = ", ".join(f"{finding.section}: {finding.name}" for finding in broken)
    return click.style(f"Broken: {names}. The fixes stand above.", fg="red")
