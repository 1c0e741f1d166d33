"""How compiled steps behave beside eager ones: the pairs of ``tests/compiler/semantics``.

    python bench/semantics.py [--only TEXT] [--no-torch] [--seconds N] [--show] [--json FILE]

Each pair runs eagerly and compiled over several calls, and everything observable is compared. The
table has, for evergrad: how the calls of a pair were served (whole program, paths: programs around
decisions by the data, traced anew, segments, eager) and how many pairs differ. Beside it, where
PyTorch is installed: how many of the same pairs agree under ``torch.compile(backend="eager")`` with
PyTorch's own eager evaluation, each in a fresh state of dynamo. ``--seconds`` bounds the time spent
on PyTorch; the pairs that were reached are counted. ``--show`` lists the pairs that differ, with
the first difference.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import evergrad  # noqa: E402
from compiler.semantics.cases import CASES  # noqa: E402
from compiler.semantics.harness import differences, run  # noqa: E402
from compiler.semantics.summary import table  # noqa: E402

Outcome = tuple[str, str]


def ours(name: str) -> Outcome:
    """How evergrad served a pair, with the first difference or the reason."""
    eager = run(CASES[name], evergrad)
    compiled = run(CASES[name], evergrad, evergrad.compile)
    found = differences(eager, compiled)
    if found:
        return "different", found[0]
    return compiled.kind, next(iter(compiled.reasons), "")


def theirs(name: str, torch: Any) -> Outcome:
    """Whether PyTorch's compiled run of a pair is as its eager run."""

    def compile(function: Any, **options: Any) -> Any:
        return torch.compile(function, backend="eager", **options)

    torch._dynamo.reset()
    eager = run(CASES[name], torch)
    compiled = run(CASES[name], torch, compile)
    found = differences(eager, compiled)
    return ("different", found[0]) if found else ("same", "")


def torch_or_none() -> Any:
    try:
        import torch
        import torch._dynamo
    except ImportError:
        return None
    torch.set_num_threads(1)
    logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
    return torch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="pairs whose name contains this text")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--seconds", type=float, default=1500, help="at most, for PyTorch")
    parser.add_argument("--show", action="store_true", help="list what differs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [name for name in sorted(CASES) if options.only in name]
    found = {name: ours(name) for name in names}
    torch = None if options.no_torch else torch_or_none()
    beside: dict[str, Outcome] = {}
    until = time.monotonic() + options.seconds
    for name in names:
        if torch is None or time.monotonic() > until:
            break
        if CASES[name].torch:
            beside[name] = theirs(name, torch)
    report(found, beside, options.show)
    if options.json:
        options.json.write_text(json.dumps({"evergrad": found, "torch": beside}, indent=1) + "\n")


def report(found: dict[str, Outcome], beside: dict[str, Outcome], show: bool) -> None:
    kinds = sorted({name.partition("/")[0] for name in found})
    print(f"{'kind':22} {'pairs':>5} {'whole':>6} {'paths':>6} {'traced':>6} {'segm.':>6} "
          f"{'eager':>6} {'differ':>6}   {'torch.compile differs':>21}")  # fmt: skip
    for kind in kinds:
        here = [v for name, v in found.items() if name.startswith(f"{kind}/")]
        there = [v for name, v in beside.items() if name.startswith(f"{kind}/")]
        counts = Counter(outcome for outcome, _ in here)
        columns = ("whole", "paths", "traced", "segments", "eager", "different")
        shown = (counts[c] for c in columns)
        wrong = sum(outcome == "different" for outcome, _ in there)
        peer = f"{wrong} of {len(there)}" if there else "-"
        print(f"{kind:22} {len(here):5} " + " ".join(f"{n:6}" for n in shown) + f"   {peer:>21}")
    print("evergrad: " + table(outcome for outcome, _ in found.values()))
    if beside:
        wrong = sum(outcome == "different" for outcome, _ in beside.values())
        print(f"torch.compile(backend='eager'): {len(beside)} pairs, different {wrong} "
              f"({wrong / len(beside):.1%})")  # fmt: skip
    if show:
        for title, outcomes in (("evergrad", found), ("torch", beside)):
            for name, (outcome, why) in outcomes.items():
                if outcome not in ("whole", "paths", "same"):
                    print(f"{title} {name}: {outcome}: {why[:300]}")


if __name__ == "__main__":
    main()
