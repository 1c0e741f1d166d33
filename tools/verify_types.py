"""How complete the types of a package are, as ``pyright --verifytypes`` counts them.

    python tools/verify_types.py [package ...]

Prints, for evergrad and for PyTorch and JAX where they are installed, the share of exported symbols
whose type is known, and those whose type is ambiguous (inferred, not annotated) or unknown. Needs
``pyright`` on the path, installed in the same environment as the packages: it looks for an
installed package, so evergrad must be installed and not only on ``PYTHONPATH``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from typing import Any


def measure(package: str) -> dict[str, Any] | None:
    """Pyright's report on a package; ``None`` if it is not installed or ships no types."""
    done = subprocess.run(
        ["pyright", "--verifytypes", package, "--ignoreexternal", "--outputjson"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    report: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    return report if report["modules"] else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", default=["evergrad", "torch", "jax"])
    packages = parser.parse_args().packages
    if shutil.which("pyright") is None:
        sys.exit("pyright is not installed: pip install 'pyright[nodejs]'")
    print(f"{'package':<10} {'complete':>8} {'known':>8} {'ambiguous':>10} {'unknown':>8}")
    for package in packages:
        report = measure(package)
        if report is None:
            print(f"{package:<10} not installed, or without py.typed")
            continue
        counts = report["exportedSymbolCounts"]
        print(
            f"{package:<10} {report['completenessScore']:>8.1%} {counts['withKnownType']:>8} "
            f"{counts['withAmbiguousType']:>10} {counts['withUnknownType']:>8}"
        )


if __name__ == "__main__":
    main()
