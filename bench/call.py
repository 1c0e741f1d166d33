"""Microseconds per call of one tiny training step, spelled in many ways.

    python bench/call.py [--rounds N] [--only TEXT] [--json FILE]
    python bench/call.py --beside-jax TURNS
    python bench/call.py --revalidation

The step is always the same: an MLP 8-16-1 on 8 rows, forward, backward and SGD. What differs is how
it is written: tensors closed over or passed, in containers, numbers that change, a learning rate
set before each step, clipping, what is returned, decisions by the loss. For evergrad (compiled) the
table shows the time and the ratio to its quickest spelling; beside it PyTorch eager in the same
spelling, and JAX (jitted, where it is installed) in the spellings it has. All alternate in one run
on one thread; processor time of the process is counted, and the least of the rounds, which a busy
machine disturbs least.

The second form compares one step with JAX's in many short turns that alternate, and prints the
median of the ratios, since the speed of a virtual machine's core changes within a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import evergrad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import call_more, call_spellings  # noqa: F401 - they add spellings to the table
from bench.call_decisions import decision_spellings
from bench.call_jax import jax_spellings
from bench.call_parts import SPELLINGS, Call, Parts

SPELLINGS.update(decision_spellings(Parts))

# Seconds that one measurement takes at least.
_LEAST = 0.02


def usable(name: str, lib: Any, wrap: Any, problems: list[str]) -> Call | None:
    """The call of a spelling after a few runs, or ``None`` with the reason noted."""
    try:
        call = SPELLINGS[name](lib, wrap)
        for _ in range(40):
            call()
    except Exception as error:
        problems.append(f"{lib.__name__}, {name}: {type(error).__name__}: {str(error)[:160]}")
        return None
    return call


def seconds(call: Call) -> float:
    """Seconds of processor time per call, over enough calls to measure."""
    count = 8
    while True:
        start = time.process_time()
        for _ in range(count):
            call()
        taken = time.process_time() - start
        if taken > _LEAST:
            return taken / count
        count = int(count * max(2.0, 1.2 * _LEAST / max(taken, 1e-9)))


def torch_or_none() -> Any:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    return torch


def measure(names: list[str], rounds: int) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Least microseconds of processor time per call, by spelling and library."""
    evergrad.set_num_threads(1)
    problems: list[str] = []
    torch, jax = torch_or_none(), jax_spellings()
    least: dict[str, dict[str, float]] = {}
    for name in names:
        calls = {"evergrad": usable(name, evergrad, evergrad.compile, problems)}
        if torch is not None:
            calls["torch"] = usable(name, torch, lambda f: f, problems)
        if name in jax:
            calls["jax"] = jax[name]()
        taken = {who: [] for who, call in calls.items() if call is not None}  # type: ignore[var-annotated]
        for _ in range(rounds):
            for who, found in taken.items():
                found.append(seconds(calls[who]))  # type: ignore[arg-type]
        least[name] = {who: 1e6 * min(found) for who, found in taken.items()}
    return least, problems


def beside_jax(turns: int, name: str = "tensors passed") -> str:
    """The ratio of a step's time to JAX's, in alternating turns of about a millisecond each."""
    evergrad.set_num_threads(1)
    problems: list[str] = []
    own, theirs = usable(name, evergrad, evergrad.compile, problems), jax_spellings()[name]()
    assert own is not None, problems
    counts = [max(1, int(1e-3 / seconds(call))) for call in (own, theirs)]
    pairs = []
    for _ in range(turns):
        pair = []
        for call, count in zip((own, theirs), counts, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            pair.append((time.perf_counter() - start) / count * 1e6)
        pairs.append(pair)
    ratios = sorted(a / b for a, b in pairs)
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    return (
        f"{name}, {turns} turns: evergrad {a:.1f} us, JAX {b:.1f} us; ratio median "
        f"{statistics.median(ratios):.2f}, a tenth below {ratios[turns // 10]:.2f}, a tenth above "
        f"{ratios[-1 - turns // 10]:.2f}"
    )


def revalidation(steps: int, width: int = 16, rows: int = 8) -> tuple[int, float]:
    """How often programs are traced again in so many steps of an MLP, and the part of the processor
    time that it takes beyond that of running them."""
    evergrad.manual_seed(0)
    nn, spent = evergrad.nn, list[float]()
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
    optimizer = evergrad.optim.SGD(model.parameters(), lr=1e-3)
    x, y = evergrad.randn(rows, width), evergrad.randn(rows, 1)

    @evergrad.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(3):  # traced and compiled, also where gradients exist before the call
        step(x, y)
    trace = step.run_python

    def timed(*args: Any) -> Any:
        began = time.process_time()
        result = trace(*args)
        spent.append(time.process_time() - began)
        return result

    step.run_python = timed
    began = time.process_time()
    for _ in range(steps):
        step(x, y)
    taken = time.process_time() - began
    run = (taken - sum(spent)) / max(steps - len(spent), 1)
    return len(spent), (sum(spent) - len(spent) * run) / taken


def report_revalidation() -> None:
    for steps, width, rows in (
        (1_000, 16, 8), (1_000, 256, 64), (1_000, 1024, 64), (100_000, 16, 8)
    ):  # fmt: skip
        count, share = revalidation(steps, width, rows)
        size = f"MLP {width}-{width}-1, {rows} rows"
        print(
            f"revalidation, {steps:,} steps, {size}: {count} traced again, {share:.2%} of the time"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="spellings whose name contains this text")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--beside-jax", type=int, metavar="TURNS")
    parser.add_argument("--revalidation", action="store_true", help="only this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.beside_jax:
        for name in ("tensors passed", "tensors closed over", "clipping by norm", "item returned"):
            print(beside_jax(options.beside_jax, name))
        return
    if options.revalidation:
        report_revalidation()
        return
    least, problems = measure([n for n in SPELLINGS if options.only in n], options.rounds)
    quickest = min((t["evergrad"] for t in least.values() if "evergrad" in t), default=float("nan"))
    print(f"{'spelling':36} {'evergrad us':>11} {'x quickest':>10} {'torch us':>9} {'jax us':>7}")
    for name, times in least.items():
        own = times.get("evergrad", float("nan"))
        peers = [f"{times[who]:.1f}" if who in times else "-" for who in ("torch", "jax")]
        print(f"{name:36} {own:11.1f} {own / quickest:10.2f} {peers[0]:>9} {peers[1]:>7}")
    ratios = sorted(t["evergrad"] / quickest for t in least.values() if "evergrad" in t)
    if ratios:
        within = sum(r <= 2 for r in ratios)
        print(f"quickest {quickest:.1f} us; {within} of {len(least)} spellings within 2x; "
              f"worst {ratios[-1]:.1f}x")  # fmt: skip
    report_revalidation()
    for line in problems:
        print("failed:", line)
    if options.json:
        options.json.write_text(json.dumps(least, indent=1) + "\n")


if __name__ == "__main__":
    main()
