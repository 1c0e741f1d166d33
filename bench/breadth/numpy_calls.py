"""Which ops of the compiled steps of the workloads run as NumPy calls.

    python -m bench.breadth.numpy_calls [--only WORD]

A line for each workload that has some: what a program of it calls in every step. The last lines
count the workloads and the calls of every op.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bench.breadth.catalogue import WORKLOADS
from bench.breadth.contenders import Contender
from bench.breadth.run import chosen


def called_ops(name: str) -> Counter[str]:
    """The ops that programs of a compiled workload leave to NumPy, and how often each."""
    contender = Contender.make("evergrad compiled", WORKLOADS[name], threads=1)
    contender.run(max(contender.period, 2))
    found: Counter[str] = Counter()
    for program in _programs_of(contender.step):
        found.update(i.label for i in program.instructions if i.kernel is None)
    return found


def _programs_of(compiled: Any) -> Iterator[Any]:
    for variants in compiled.variants.values():
        for variant in variants:
            yield variant.program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="workloads or families with one of these words")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    calls: Counter[str] = Counter()
    workloads: Counter[str] = Counter()
    names = chosen(options.only)
    for name in names:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            found = called_ops(name)
        calls.update(found)
        workloads.update(found.keys())
        if found:
            print(f"{name:32} {', '.join(f'{op} x{n}' for op, n in found.items())}", flush=True)
    print(f"\n{len(names)} workloads; ops that NumPy evaluates, with workloads and calls:")
    for op, count in workloads.most_common():
        print(f"{op:32} {count:4} {calls[op]:5}")


if __name__ == "__main__":
    sys.exit(main())
