"""Microseconds per call of one tiny training step, spelled in many ways.

    python bench/call.py [--rounds N] [--only TEXT] [--json FILE]

The step is always the same: an MLP 8-16-1 on 8 rows, forward, backward and SGD. What differs is how
it is written: tensors closed over or passed, in containers, numbers that change, a learning rate
set before each step, clipping, what is returned. For evergrad (compiled) the table shows the time
and the ratio to its quickest spelling; beside it PyTorch eager in the same spelling, and JAX
(jitted, where it is installed) in the spellings it has. All alternate in one run on one thread;
processor time of the process is counted, and the least of the rounds, which a busy machine disturbs
least.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import evergrad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.call_jax import jax_spellings

Call = Callable[[], Any]
# Seconds that one measurement takes at least.
_LEAST = 0.02


class Parts:
    """A model with its optimizer and batch."""

    def __init__(self, lib: Any, optimizer: str = "SGD") -> None:
        self.lib, self.F = lib, lib.nn.functional
        lib.manual_seed(0)
        nn = lib.nn
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = getattr(lib.optim, optimizer)(self.model.parameters(), lr=1e-3)
        self.x, self.y = lib.randn(8, 8), lib.randn(8, 1)

    def loss(self, x: Any, y: Any) -> Any:
        return self.F.mse_loss(self.model(x), y)

    def train(self, x: Any, y: Any, scale: Any = None) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        (loss if scale is None else loss * scale).backward()
        self.optimizer.step()
        return loss.detach()


@dataclass
class Batch:
    x: Any
    y: Any


class Pair(NamedTuple):
    x: Any
    y: Any


SPELLINGS: dict[str, Callable[[Any, Any], Call]] = {}


def spelling(function: Callable[[Any, Any], Call]) -> Callable[[Any, Any], Call]:
    SPELLINGS[function.__name__.replace("_", " ")] = function
    return function


@spelling
def tensors_passed(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda x, y: p.train(x, y))
    return lambda: step(p.x, p.y)


@spelling
def tensors_closed_over(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    x, y = p.x, p.y
    return wrap(lambda: p.train(x, y))  # type: ignore[no-any-return]


@spelling
def tensors_as_attributes(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    return wrap(lambda: p.train(p.x, p.y))  # type: ignore[no-any-return]


@spelling
def keyword_arguments(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda *, x, y: p.train(x, y))
    return lambda: step(x=p.x, y=p.y)


@spelling
def a_dictionary(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda batch: p.train(batch["x"], batch["y"]))
    return lambda: step({"x": p.x, "y": p.y})


@spelling
def a_tuple(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda batch: p.train(*batch))
    return lambda: step((p.x, p.y))


@spelling
def a_dataclass(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda batch: p.train(batch.x, batch.y))
    return lambda: step(Batch(p.x, p.y))


@spelling
def a_named_tuple(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda batch: p.train(batch.x, batch.y))
    return lambda: step(Pair(p.x, p.y))


@spelling
def nested_containers(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda batch: p.train(batch["in"][0], batch["out"]["y"]))
    return lambda: step({"in": [p.x], "out": {"y": p.y}})


@spelling
def arrays(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    x, y = p.x.numpy(), p.y.numpy()
    step = wrap(lambda x, y: p.train(lib.from_numpy(x), lib.from_numpy(y)))
    return lambda: step(x, y)


@spelling
def a_float_that_changes(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(1)
    step = wrap(lambda x, y, scale: p.train(x, y, scale))
    return lambda: step(p.x, p.y, 1.0 / next(numbers))


@spelling
def an_int_that_changes(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(1)
    step = wrap(lambda x, y, n: p.train(x, y, 1.0 / n))
    return lambda: step(p.x, p.y, next(numbers))


@spelling
def a_numpy_float_that_changes(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(1)
    step = wrap(lambda x, y, scale: p.train(x, y, scale))
    return lambda: step(p.x, p.y, np.float64(1.0 / next(numbers)))


@spelling
def a_float_in_a_condition(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(2)
    step = wrap(lambda x, y, t: p.train(x, y, t if t < 0.9 else 1.0))
    return lambda: step(p.x, p.y, 1.0 / next(numbers))


@spelling
def an_attribute_that_changes(lib: Any, wrap: Any) -> Call:
    class Trainer:
        beta = 1.0

        def step(self, x: Any, y: Any) -> Any:
            return p.train(x, y, self.beta)

    p, trainer = Parts(lib), Trainer()
    step = wrap(trainer.step)

    def call() -> Any:
        trainer.beta *= 0.9999
        return step(p.x, p.y)

    return call


@spelling
def a_counter_in_a_module(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    p.model.step = 0

    def step(x: Any, y: Any) -> Any:
        p.model.step += 1
        return p.train(x, y)

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def losses_appended(lib: Any, wrap: Any) -> Call:
    p, losses = Parts(lib), deque[Any](maxlen=100)

    def step(x: Any, y: Any) -> Any:
        loss = p.train(x, y)
        losses.append(loss)
        return loss

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def an_argument_that_requires_grad(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    x = p.x.clone().requires_grad_()

    def step(x: Any, y: Any) -> Any:
        x.grad = None
        return p.train(x, y)

    compiled = wrap(step)
    return lambda: compiled(x, p.y)


@spelling
def zero_grad_last(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)

    def step(x: Any, y: Any) -> Any:
        loss = p.loss(x, y)
        loss.backward()
        p.optimizer.step()
        p.optimizer.zero_grad()
        return loss.detach()

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def zero_grad_to_zeros(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)

    def step(x: Any, y: Any) -> Any:
        p.optimizer.zero_grad(set_to_none=False)
        loss = p.loss(x, y)
        loss.backward()
        p.optimizer.step()
        return loss.detach()

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def zero_grad_outside(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)

    def step(x: Any, y: Any) -> Any:
        loss = p.loss(x, y)
        loss.backward()
        p.optimizer.step()
        return loss.detach()

    compiled = wrap(step)

    def call() -> Any:
        p.optimizer.zero_grad()
        return compiled(p.x, p.y)

    return call


@spelling
def rate_set_before_each_step(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(1)
    step = wrap(lambda x, y: p.train(x, y))

    def call() -> Any:
        for group in p.optimizer.param_groups:
            group["lr"] = 1e-3 / next(numbers)
        return step(p.x, p.y)

    return call


@spelling
def rate_as_an_argument(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(1)

    def step(x: Any, y: Any, lr: float) -> Any:
        p.optimizer.param_groups[0]["lr"] = lr
        return p.train(x, y)

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y, 1e-3 / next(numbers))


@spelling
def a_scheduler_outside(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    scheduler = lib.optim.lr_scheduler.ExponentialLR(p.optimizer, gamma=0.99999)
    step = wrap(lambda x, y: p.train(x, y))

    def call() -> Any:
        loss = step(p.x, p.y)
        scheduler.step()
        return loss

    return call


@spelling
def a_scheduler_inside(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    scheduler = lib.optim.lr_scheduler.ExponentialLR(p.optimizer, gamma=0.99999)

    def step(x: Any, y: Any) -> Any:
        loss = p.train(x, y)
        scheduler.step()
        return loss

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


def clipped(clip: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Call]:
    def make(lib: Any, wrap: Any) -> Call:
        p = Parts(lib)
        parameters = list(p.model.parameters())

        def step(x: Any, y: Any) -> Any:
            p.optimizer.zero_grad()
            loss = p.loss(x, y)
            loss.backward()
            clip(lib, parameters)
            p.optimizer.step()
            return loss.detach()

        compiled = wrap(step)
        return lambda: compiled(p.x, p.y)

    return make


SPELLINGS["clipping by norm"] = clipped(lambda lib, ps: lib.nn.utils.clip_grad_norm_(ps, 0.5))
SPELLINGS["clipping by value"] = clipped(lambda lib, ps: lib.nn.utils.clip_grad_value_(ps, 0.1))


@spelling
def autograd_grad_with_a_manual_update(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    parameters = list(p.model.parameters())

    def step(x: Any, y: Any) -> Any:
        loss = p.loss(x, y)
        grads = lib.autograd.grad(loss, parameters)
        with lib.no_grad():
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.sub_(grad, alpha=1e-3)
        return loss.detach()

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def a_method(lib: Any, wrap: Any) -> Call:
    class Trainer(Parts):
        def step(self, x: Any, y: Any) -> Any:
            self.optimizer.zero_grad()
            loss = self.F.mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            return loss.detach()

    trainer = Trainer(lib)
    step = wrap(trainer.step)
    return lambda: step(trainer.x, trainer.y)


@spelling
def a_decorated_method(lib: Any, wrap: Any) -> Call:
    class Trainer(Parts):
        @wrap
        def step(self, x: Any, y: Any) -> Any:
            return self.train(x, y)

    trainer = Trainer(lib)
    return lambda: trainer.step(trainer.x, trainer.y)


@spelling
def a_counter_in_the_step(lib: Any, wrap: Any) -> Call:
    class Trainer(Parts):
        n = 0

        def step(self, x: Any, y: Any) -> Any:
            self.n += 1
            return self.train(x, y)

    trainer = Trainer(lib)
    step = wrap(trainer.step)
    return lambda: step(trainer.x, trainer.y)


@spelling
def a_running_average(lib: Any, wrap: Any) -> Call:
    class Trainer(Parts):
        average: Any = 0.0

        def step(self, x: Any, y: Any) -> Any:
            loss = self.train(x, y)
            self.average = 0.9 * self.average + 0.1 * loss
            return loss

    trainer = Trainer(lib)
    trainer.average = lib.zeros(())
    step = wrap(trainer.step)
    return lambda: step(trainer.x, trainer.y)


@spelling
def a_tuple_returned(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda x, y: (p.train(x, y), x.shape[0]))
    return lambda: step(p.x, p.y)


@spelling
def a_dictionary_returned(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda x, y: {"loss": p.train(x, y), "rows": x.shape[0]})
    return lambda: step(p.x, p.y)


@spelling
def nothing_returned(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)

    def step(x: Any, y: Any) -> None:
        p.train(x, y)

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def item_returned(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda x, y: p.train(x, y).item())
    return lambda: step(p.x, p.y)


@spelling
def item_outside(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda x, y: p.train(x, y))
    return lambda: step(p.x, p.y).item()


@spelling
def loss_not_detached(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)

    def step(x: Any, y: Any) -> Any:
        p.optimizer.zero_grad()
        loss = p.loss(x, y)
        loss.backward()
        p.optimizer.step()
        return loss

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def batches_of_a_loader(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    batches = itertools.cycle([(lib.randn(8, 8), lib.randn(8, 1)) for _ in range(16)])
    step = wrap(lambda x, y: p.train(x, y))
    return lambda: step(*next(batches))


@spelling
def slices_of_the_data(lib: Any, wrap: Any) -> Call:
    p, starts = Parts(lib), itertools.cycle(range(0, 128, 8))
    data, target = lib.randn(128, 8), lib.randn(128, 1)
    step = wrap(lambda x, y: p.train(x, y))

    def call() -> Any:
        at = next(starts)
        return step(data[at : at + 8], target[at : at + 8])

    return call


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


def revalidation(steps: int = 1000) -> tuple[int, float]:
    """How often programs are traced again in so many steps, and the part of the time it takes."""
    p, spent = Parts(evergrad), []
    step = evergrad.compile(lambda x, y: p.train(x, y))
    for _ in range(3):
        step(p.x, p.y)
    trace = step.run_python

    def timed(*args: Any) -> Any:
        began = time.process_time()
        result = trace(*args)
        spent.append(time.process_time() - began)
        return result

    step.run_python = timed
    began = time.process_time()
    for _ in range(steps):
        step(p.x, p.y)
    return len(spent), sum(spent) / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="spellings whose name contains this text")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
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
    for steps in (1_000, 100_000):
        count, share = revalidation(steps)
        print(
            f"revalidation in {steps:,} steps: {count} calls traced again, {share:.2%} of the time"
        )
    for line in problems:
        print("failed:", line)
    if options.json:
        options.json.write_text(json.dumps(least, indent=1) + "\n")


if __name__ == "__main__":
    main()
