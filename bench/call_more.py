"""Further spellings of the step of ``bench/call.py``: what is set between two calls, schedules,
optimizers with more than one group, and calls that differ from one another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from bench.call_parts import SPELLINGS, Call, Parts, spelling

Change = Callable[[Any, int], None]


class Scaled(Parts):
    """With a module that multiplies by a number, drops out, and normalizes."""

    def __init__(self, lib: Any, layer: Any = None) -> None:
        super().__init__(lib)

        class Scale(lib.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.factor = 1.0

            def forward(self, x: Any) -> Any:
                return x * self.factor

        nn = lib.nn
        self.layer = Scale() if layer is None else layer(nn)
        self.model = nn.Sequential(nn.Linear(8, 16), self.layer, nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = lib.optim.SGD(self.model.parameters(), lr=1e-3)


def changed_before_each_call(
    change: Change, layer: Any = None
) -> Callable[[Any, Any], Call]:  # fmt: skip
    def make(lib: Any, wrap: Any) -> Call:
        p, numbers = Scaled(lib, layer), itertools.count(1)
        step = wrap(lambda x, y: p.train(x, y))

        def call() -> Any:
            change(p, next(numbers))
            return step(p.x, p.y)

        return call

    return make


def set_to(name: str, value: Callable[[int], float]) -> Change:
    return lambda p, n: setattr(p.layer, name, value(n))


SPELLINGS["a module attribute set"] = changed_before_each_call(set_to("factor", lambda n: 1.0 / n))
SPELLINGS["dropout as it is"] = changed_before_each_call(
    lambda p, n: None, lambda nn: nn.Dropout(0.1)
)
SPELLINGS["dropout p set"] = changed_before_each_call(
    set_to("p", lambda n: 0.5 / (n + 1)), lambda nn: nn.Dropout(0.1)
)
SPELLINGS["batch norm as it is"] = changed_before_each_call(
    lambda p, n: None, lambda nn: nn.BatchNorm1d(16)
)
SPELLINGS["batch norm momentum set"] = changed_before_each_call(
    set_to("momentum", lambda n: 0.5 / (n + 1)), lambda nn: nn.BatchNorm1d(16)
)
SPELLINGS["layer norm eps set"] = changed_before_each_call(
    set_to("eps", lambda n: 1e-5 / (n + 1)), lambda nn: nn.LayerNorm(16)
)
SPELLINGS["leaky slope set"] = changed_before_each_call(
    set_to("negative_slope", lambda n: 0.5 / (n + 1)), lambda nn: nn.LeakyReLU()
)
SPELLINGS["train and eval alternating"] = changed_before_each_call(
    lambda p, n: p.model.train(n % 2 == 0) and None, lambda nn: nn.Dropout(0.1)
)
SPELLINGS["requires grad toggled"] = changed_before_each_call(
    lambda p, n: p.model[0].requires_grad_(n % 2 == 0) and None
)


def scheduled(
    make_scheduler: Callable[[Any, Any], Any], inside: bool
) -> Callable[[Any, Any], Call]:
    def make(lib: Any, wrap: Any) -> Call:
        p = Parts(lib)
        scheduler = make_scheduler(lib.optim.lr_scheduler, p.optimizer)

        def step(x: Any, y: Any) -> Any:
            loss = p.train(x, y)
            if inside:
                scheduler.step()
            return loss

        compiled = wrap(step)

        def call() -> Any:
            loss = compiled(p.x, p.y)
            if not inside:
                scheduler.step()
            return loss

        return call

    return make


SCHEDULERS: dict[str, Callable[[Any, Any], Any]] = {
    "step": lambda s, optimizer: s.StepLR(optimizer, 1000, gamma=0.9),
    "linear": lambda s, optimizer: s.LinearLR(optimizer, total_iters=10**9),
    "cosine": lambda s, optimizer: s.CosineAnnealingLR(optimizer, T_max=10**9),
    "one cycle": lambda s, optimizer: s.OneCycleLR(optimizer, 0.1, total_steps=10**9),
    "lambda": lambda s, optimizer: s.LambdaLR(optimizer, lambda n: 1 / (1 + n)),
}
for _name, _scheduler in SCHEDULERS.items():
    SPELLINGS[f"a {_name} schedule inside"] = scheduled(_scheduler, True)
    SPELLINGS[f"a {_name} schedule outside"] = scheduled(_scheduler, False)


@spelling
def two_groups_with_rates_set(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(1)
    first, second = p.model[0].parameters(), p.model[2].parameters()
    p.optimizer = lib.optim.SGD([{"params": first}, {"params": second, "lr": 1e-4}], lr=1e-3)
    step = wrap(lambda x, y: p.train(x, y))

    def call() -> Any:
        rate = 1e-3 / next(numbers)
        for n, group in enumerate(p.optimizer.param_groups):
            group["lr"] = rate / (1 + n)
        return step(p.x, p.y)

    return call


def optimized(name: str, **options: Any) -> Callable[[Any, Any], Call]:
    def make(lib: Any, wrap: Any) -> Call:
        p = Parts(lib)
        p.optimizer = getattr(lib.optim, name)(p.model.parameters(), lr=1e-4, **options)
        step = wrap(lambda x, y: p.train(x, y))
        return lambda: step(p.x, p.y)

    return make


SPELLINGS["momentum"] = optimized("SGD", momentum=0.9)
SPELLINGS["Adam"] = optimized("Adam")
SPELLINGS["AdamW"] = optimized("AdamW")


@spelling
def a_grad_scaler(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    scaler = lib.amp.GradScaler("cpu")

    def step(x: Any, y: Any) -> Any:
        p.optimizer.zero_grad()
        loss = p.loss(x, y)
        scaler.scale(loss).backward()
        scaler.step(p.optimizer)
        scaler.update()
        return loss.detach()

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def clipping_with_foreach(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)

    def step(x: Any, y: Any) -> Any:
        p.optimizer.zero_grad()
        loss = p.loss(x, y)
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(p.model.parameters(), 0.5, foreach=True)
        p.optimizer.step()
        return loss.detach(), norm

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def a_closure(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)

    def step(x: Any, y: Any) -> Any:
        def closure() -> Any:
            p.optimizer.zero_grad()
            loss = p.loss(x, y)
            loss.backward()
            return loss

        return p.optimizer.step(closure)

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def an_averaged_model(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    averages = lib.optim.swa_utils
    average = averages.AveragedModel(p.model, multi_avg_fn=averages.get_ema_multi_avg_fn(0.99))

    def step(x: Any, y: Any) -> Any:
        loss = p.train(x, y)
        average.update_parameters(p.model)
        return loss

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y)


@spelling
def accumulation_over_four_calls(lib: Any, wrap: Any) -> Call:
    p, numbers = Parts(lib), itertools.count(1)

    def step(x: Any, y: Any, last: bool) -> Any:
        loss = p.loss(x, y)
        (loss / 4).backward()
        if last:
            p.optimizer.step()
            p.optimizer.zero_grad()
        return loss.detach()

    compiled = wrap(step)
    return lambda: compiled(p.x, p.y, next(numbers) % 4 == 0)


@spelling
def accumulation_counted_inside(lib: Any, wrap: Any) -> Call:
    class Trainer(Parts):
        n = 0

        def step(self, x: Any, y: Any) -> Any:
            loss = self.loss(x, y)
            (loss / 4).backward()
            self.n += 1
            if self.n % 4 == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
            return loss.detach()

    p = Trainer(lib)
    compiled = wrap(p.step)
    return lambda: compiled(p.x, p.y)


@spelling
def any_arguments(lib: Any, wrap: Any) -> Call:
    p = Parts(lib)
    step = wrap(lambda *args, mask=None, **options: p.train(*args, **options))
    return lambda: step(p.x, p.y, scale=0.5)


@spelling
def two_batch_sizes(lib: Any, wrap: Any) -> Call:
    p, turns = Parts(lib), itertools.count()
    batches = [(p.x, p.y), (lib.randn(5, 8), lib.randn(5, 1))]
    step = wrap(lambda x, y: p.train(x, y))
    return lambda: step(*batches[next(turns) % 2])


@spelling
def a_step_and_an_evaluation(lib: Any, wrap: Any) -> Call:
    """Two calls."""
    p = Parts(lib)
    train = wrap(lambda x, y: p.train(x, y))

    def evaluate(x: Any, y: Any) -> Any:
        with lib.no_grad():
            return p.loss(x, y)

    test = wrap(evaluate)

    def call() -> Any:
        train(p.x, p.y)
        return test(p.x, p.y)

    return call


@spelling
def a_forward_pass_compiled(lib: Any, wrap: Any) -> Call:
    """The loss is differentiated outside of the compiled function."""
    p = Parts(lib)
    loss_of = wrap(p.loss)

    def call() -> Any:
        p.optimizer.zero_grad()
        loss = loss_of(p.x, p.y)
        loss.backward()
        p.optimizer.step()
        return loss.detach()

    return call
