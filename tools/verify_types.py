"""How complete the types of a package are, as ``pyright --verifytypes`` counts them.

    python tools/verify_types.py [--least 0.95] [package ...]

Prints, for evergrad (this checkout) and for PyTorch and JAX where this interpreter has them, the
share of exported symbols whose type is known, and how many are ambiguous (inferred, not annotated)
or unknown. ``--least`` fails if the first package has a smaller share. Needs ``pyright`` on the
path: ``pip install 'pyright[nodejs]'``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"


def measure(package: str) -> dict[str, Any] | None:
    """Pyright's report on a package; ``None`` if it is not installed or ships no types."""
    done = subprocess.run(
        ["pyright", "--pythonpath", sys.executable, "--verifytypes", package, "--ignoreexternal",
         "--outputjson"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return report if report["modules"] else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", default=["evergrad", "torch", "jax"])
    parser.add_argument("--least", type=float, default=0.0, help="fail below this share")
    options = parser.parse_args()
    if shutil.which("pyright") is None:
        sys.exit("pyright is not installed: pip install 'pyright[nodejs]'")
    print(f"{'package':<10} {'complete':>8} {'known':>8} {'ambiguous':>10} {'unknown':>8}")
    scores = []
    for package in options.packages:
        report = measure(package)
        if report is None:
            print(f"{package:<10} not installed, or without py.typed")
            scores.append(0.0)
            continue
        counts = report["exportedSymbolCounts"]
        scores.append(report["completenessScore"])
        print(
            f"{package:<10} {scores[-1]:>8.1%} {counts['withKnownType']:>8} "
            f"{counts['withAmbiguousType']:>10} {counts['withUnknownType']:>8}"
        )
    if scores[0] < options.least:
        sys.exit(f"{options.packages[0]}: {scores[0]:.1%} of the symbols are known, less than "
                 f"{options.least:.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
