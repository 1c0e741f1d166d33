"""How often the source says ``Any`` where a type could stand.

    python tools/count_any.py [--most 60] [--files 20]

Counts the name ``Any`` in annotations and aliases (imports aside), per 1,000 lines of
``src/evergrad``, and lists the files that say it most. ``--most`` fails if there are more.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "evergrad"


def count(source: str) -> int:
    """The uses of the name ``Any`` in a module."""
    return sum(isinstance(n, ast.Name) and n.id == "Any" for n in ast.walk(ast.parse(source)))


def measure() -> tuple[dict[str, int], int]:
    """The uses in each file that has some, and the lines of all files."""
    found, lines = {}, 0
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        lines += text.count("\n")
        if uses := count(text):
            found[path.relative_to(SOURCE).as_posix()] = uses
    return found, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--most", type=float, help="fail above this number per 1,000 lines")
    parser.add_argument("--files", type=int, default=20, help="how many files to list")
    options = parser.parse_args()
    found, lines = measure()
    for name in sorted(found, key=found.__getitem__, reverse=True)[: options.files]:
        print(f"{found[name]:>6}  {name}")
    share = 1000 * sum(found.values()) / lines
    print(f"{sum(found.values()):>6}  in {lines} lines: {share:.1f} per 1,000")
    if options.most is not None and share > options.most:
        sys.exit(f"more than {options.most:g} per 1,000 lines")


if __name__ == "__main__":
    main()
