"""Steps as they are written in training scripts: meters, callbacks, registers, schedules, logs."""

from __future__ import annotations

import contextlib
import contextvars
import enum
import functools
import io
import itertools
import logging
import math
import threading
import time
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from .registry import Seen, attempt, batch, case, layer, leaf, mlp, ramp, weights

DEPTH: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)


def trained(lib: Any, model: Any, optimizer: Any, x: Any) -> Any:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


@case
def an_average_meter(lib: Any, wrap: Any) -> Seen:
    class AverageMeter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.val, self.sum, self.count, self.avg = 0.0, 0.0, 0, 0.0

        def update(self, val, n=1):
            self.val = val
            self.sum += val * n
            self.count += n
            self.avg = self.sum / self.count

    model, meter = layer(lib), AverageMeter()
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = trained(lib, model, optimizer, x)
        meter.update(loss.item(), x.shape[0])
        return loss

    step = wrap(step)
    for n in range(7):
        if n == 4:
            meter.reset()
        yield step(batch(lib, n)), meter.avg, meter.count, weights(model)


@case
def an_exponential_average_of_the_weights(lib: Any, wrap: Any) -> Seen:
    class EMA:
        def __init__(self, model, decay):
            self.decay, self.updates = decay, 0
            self.shadow = {k: p.detach().clone() for k, p in model.named_parameters()}

        def update(self, model):
            self.updates += 1
            decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
            for k, p in model.named_parameters():
                self.shadow[k] = decay * self.shadow[k] + (1 - decay) * p.detach()

    model = layer(lib)
    optimizer, ema = lib.optim.SGD(model.parameters(), lr=0.1), EMA(model, 0.5)

    def step(x):
        loss = trained(lib, model, optimizer, x)
        ema.update(model)
        return loss

    step = wrap(step)
    for n in range(7):
        yield step(batch(lib, n)), ema.updates, ema.shadow


@case
def a_ring_of_transitions(lib: Any, wrap: Any) -> Seen:
    class Replay:
        def __init__(self, size):
            self.data, self.at, self.full = lib.zeros(size, 3), 0, False

        def push(self, row):
            self.data[self.at] = row
            self.at = (self.at + 1) % self.data.shape[0]
            self.full = self.full or self.at == 0

    replay = Replay(3)

    def step(x):
        replay.push(x.mean(0))
        return replay.data.sum()

    step = wrap(step)
    for n in range(10):
        yield step(batch(lib, n)), replay.data, replay.at, replay.full


@case
def a_curriculum(lib: Any, wrap: Any) -> Seen:
    @dataclass
    class Curriculum:
        step: int = 0
        stages: list = field(default_factory=lambda: [(0, 0.5), (3, 1.0), (6, 2.0)])

        @property
        def difficulty(self):
            return [gain for start, gain in self.stages if self.step >= start][-1]

    curriculum = Curriculum()

    def step(x):
        curriculum.step += 1
        return x * curriculum.difficulty

    step = wrap(step)
    for n in range(9):
        if n == 7:
            curriculum.stages[0] = (0, 9.0)
        yield step(ramp(lib, 3)), curriculum.step


@case
def callbacks_with_state(lib: Any, wrap: Any) -> Seen:
    class Callback:
        def on_step(self, trainer, loss):
            pass

    class Count(Callback):
        def __init__(self):
            self.n = 0

        def on_step(self, trainer, loss):
            self.n += 1

    class Keep(Callback):
        def __init__(self):
            self.losses = []

        def on_step(self, trainer, loss):
            self.losses.append(loss)

    class Trainer:
        def __init__(self, *callbacks):
            self.callbacks, self.model = list(callbacks), layer(lib)
            self.optimizer = lib.optim.SGD(self.model.parameters(), lr=0.1)

        def step(self, x):
            loss = trained(lib, self.model, self.optimizer, x)
            for callback in self.callbacks:
                callback.on_step(self, loss)
            return loss

    count, keep = Count(), Keep()
    trainer = Trainer(count, keep)
    step = wrap(trainer.step)
    for n in range(7):
        if n == 4:
            trainer.callbacks.append(Count())
        yield (
            step(batch(lib, n)),
            count.n,
            keep.losses,
            [c.n for c in trainer.callbacks if isinstance(c, Count)],
        )


@case
def metrics_in_default_dictionaries(lib: Any, wrap: Any) -> Seen:
    metrics, counts = defaultdict(float), Counter()

    def step(x, split):
        metrics[f"{split}/loss"] += 0.5
        metrics["last"] = float(x.shape[0])
        counts[split] += 1
        return x * counts[split]

    step = wrap(step)
    for n in range(8):
        yield step(ramp(lib, 3), "train" if n % 2 else "test"), dict(metrics), dict(counts)


@case
def a_window_of_losses(lib: Any, wrap: Any) -> Seen:
    window, smoothed = deque(maxlen=3), []

    def step(x):
        window.append(x.mean())
        return sum(window) / len(window)

    step = wrap(step)
    for n in range(8):
        smoothed.append(step(ramp(lib, 3) * n))
        yield smoothed[-1], list(window)


@case
def a_phase_and_a_match(lib: Any, wrap: Any) -> Seen:
    class Phase(enum.Enum):
        WARM = "warm"
        MAIN = "main"
        DONE = "done"

    s = SimpleNamespace(phase=Phase.WARM, steps=Counter())

    def step(x):
        s.steps[s.phase.name] += 1
        match s.phase:
            case Phase.WARM:
                return x * 0.1
            case Phase.MAIN:
                return x * s.steps["MAIN"]
            case _:
                return x

    step = wrap(step)
    for n in range(9):
        s.phase = list(Phase)[min(n // 3, 2)]
        yield step(ramp(lib, 3)), dict(s.steps)


@case
def a_register_of_losses(lib: Any, wrap: Any) -> Seen:
    register = {}

    def loss(name):
        def enter(function):
            register[name] = function
            return function

        return enter

    @loss("l1")
    def l1(x):
        return x.abs().mean()

    @loss("l2")
    def l2(x):
        return x.square().mean()

    step = wrap(lambda x, name, gain: register[name](x) * gain)
    for n in range(7):
        if n == 5:
            register["l1"] = lambda x: x.sum()
        yield step(ramp(lib, 3), "l1" if n % 2 else "l2", 0.5 * n)


@case
def a_measured_step(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(total=0.0, calls=0)

    def step(x):
        start = time.perf_counter()
        y = x.exp()
        s.total += time.perf_counter() - start
        s.calls += 1
        return y

    step = wrap(step)
    for n in range(6):
        before = s.total
        yield step(ramp(lib, 3) * n), s.calls, s.total >= before


@case
def a_logger_of_the_module(lib: Any, wrap: Any) -> Seen:
    out = io.StringIO()
    logger = logging.Logger("wild")
    logger.addHandler(logging.StreamHandler(out))
    logger.setLevel(logging.INFO)
    s = SimpleNamespace(step=0)

    def step(x):
        s.step += 1
        loss = x.square().mean()
        if s.step % 2 == 0:
            logger.info("step %d loss %.3f", s.step, loss.item())
        logger.debug(f"not shown {s.step}")
        return loss

    step = wrap(step)
    for n in range(8):
        if n == 5:
            logger.setLevel(logging.DEBUG)
        yield step(ramp(lib, 3) + n), out.getvalue()


@case
def a_line_for_every_step(lib: Any, wrap: Any) -> Seen:
    s, model = SimpleNamespace(epoch=0, step=0), layer(lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        s.step += 1
        loss = trained(lib, model, optimizer, x)
        print(f"epoch {s.epoch} step {s.step:04d}: loss {loss.item():.4f}, lr {0.1:g}")
        return loss

    step = wrap(step)
    for n in range(7):
        s.epoch = n // 3
        yield step(batch(lib, n)), s.step


@case
def a_table_written_to_a_stream(lib: Any, wrap: Any) -> Seen:
    out, s = io.StringIO(), SimpleNamespace(row=0)

    def step(x):
        s.row += 1
        out.write(f"{s.row},{x.sum().item():.2f}\n")
        print(s.row, x.max().item(), sep=";", file=out)
        return x * 2

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3) + n), out.getvalue()
        if n == 3:
            out.truncate(0)
            out.seek(0)


@case
def a_context_manager_with_a_counter(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(depth=0, entered=0, times=[])

    @contextlib.contextmanager
    def scope(name):
        s.depth += 1
        s.entered += 1
        try:
            yield s.depth
        finally:
            s.depth -= 1

    def step(x):
        with scope("outer") as a, scope("inner") as b:
            return x * a + b

    step = wrap(step)
    for _ in range(5):
        yield step(ramp(lib, 3)), s.depth, s.entered


@case
def a_class_as_a_context(lib: Any, wrap: Any) -> Seen:
    class Timer:
        laps = []  # noqa: RUF012

        def __enter__(self):
            self.n = len(Timer.laps)
            return self

        def __exit__(self, *error):
            Timer.laps.append(self.n)
            return error[0] is KeyError

    def step(x, fails):
        with Timer() as timer:
            if fails:
                raise KeyError("user")
            return x * timer.n
        return -x

    step = wrap(step)
    for n in range(6):
        yield step(ramp(lib, 3), n == 3), list(Timer.laps)


@case
def partial_functions_as_options(lib: Any, wrap: Any) -> Seen:
    def scaled(x, gain, *, shift=0.0):
        return x * gain + shift

    s = SimpleNamespace(head=functools.partial(scaled, gain=2.0))
    step = wrap(lambda x: s.head(x))
    for n in range(6):
        if n == 2:
            s.head = functools.partial(scaled, gain=3.0, shift=1.0)
        if n == 4:
            s.head.keywords["shift"] = -1.0
        yield step(ramp(lib, 3))


@case
def a_descriptor_that_counts(lib: Any, wrap: Any) -> Seen:
    class Counted:
        def __init__(self, value):
            self.value, self.reads = value, 0

        def __get__(self, instance, owner=None):
            self.reads += 1
            return self.value * instance.gain

    counted = Counted(2.0)

    class Model:
        level = counted
        gain = 1.0

    model = Model()
    step = wrap(lambda x: x * model.level)
    for n in range(6):
        model.gain = 1.0 + n // 2
        yield step(ramp(lib, 3)), counted.reads


@case
def attributes_by_getattr(lib: Any, wrap: Any) -> Seen:
    class Config:
        def __init__(self, **given):
            self.__dict__["given"] = given

        def __getattr__(self, name):
            try:
                return self.given[name]
            except KeyError:
                raise AttributeError(name) from None

        def __setattr__(self, name, value):
            self.given[name] = value

    config = Config(gain=2.0, steps=0)

    def step(x):
        config.steps += 1
        return x * config.gain + getattr(config, "shift", 0.0)

    step = wrap(step)
    for n in range(6):
        if n == 2:
            config.gain = 5.0
        if n == 4:
            config.shift = 1.0
        yield step(ramp(lib, 3)), config.steps


@case
def early_stopping_by_epochs(lib: Any, wrap: Any) -> Seen:
    @dataclass
    class Stop:
        patience: int = 2
        bad: int = 0
        stopped: bool = False

        def __call__(self, improved):
            self.bad = 0 if improved else self.bad + 1
            self.stopped = self.bad > self.patience
            return self.stopped

    stop = Stop()

    def step(x, improved):
        return x * 0 if stop(improved) else x * (1 + stop.bad)

    step = wrap(step)
    for n in range(9):
        yield step(ramp(lib, 3), n in (1, 2, 5)), stop.bad, stop.stopped


@case
def a_state_passed_around(lib: Any, wrap: Any) -> Seen:
    @dataclass
    class TrainState:
        step: int
        average: Any
        history: dict

    def step(state, x):
        state.step += 1
        state.average = 0.9 * state.average + 0.1 * x.mean()
        state.history["last"] = x.sum()
        return state.average * state.step

    step = wrap(step)
    state = TrainState(0, lib.zeros(()), {"last": lib.zeros(())})
    for n in range(7):
        if n == 4:
            state.step = 100
        yield step(state, ramp(lib, 3) * n), state


@case
def a_dictionary_of_metrics_as_argument(lib: Any, wrap: Any) -> Seen:
    def step(metrics, x):
        metrics["count"] += x.shape[0]
        metrics["total"] = metrics["total"] + x.sum()
        return metrics["total"] / metrics["count"]

    step = wrap(step)
    metrics = {"count": 0, "total": lib.zeros(())}
    for n in range(7):
        if n == 4:
            metrics = {"count": 10, "total": lib.ones(())}
        yield step(metrics, ramp(lib, 3) * n), metrics


@case
def weak_references_to_observers(lib: Any, wrap: Any) -> Seen:
    class Observer:
        def __init__(self):
            self.seen = 0

    observers = [Observer(), Observer()]
    references = [weakref.ref(o) for o in observers]

    def step(x):
        for reference in references:
            observer = reference()
            if observer is not None:
                observer.seen += 1
                x = x * 2
        return x

    step = wrap(step)
    for n in range(6):
        if n == 3:
            observers.pop()
        yield step(ramp(lib, 3)), [o.seen for o in observers]


@case
def sorted_groups_of_parameters(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)
    decay = {"weight": 0.1, "bias": 0.0}

    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        with lib.no_grad():
            named = sorted(model.named_parameters(), key=lambda pair: (-pair[1].dim(), pair[0]))
            for n, (name, p) in enumerate(reversed(named)):
                p.sub_(p.grad * 0.1 / (n + 1) + p * decay[name.rpartition(".")[2]])
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        if n == 3:
            decay["bias"] = 0.5
        yield step(batch(lib, n)), weights(model)


@case
def gradients_accumulated_over_steps(lib: Any, wrap: Any) -> Seen:
    model, s = layer(lib), SimpleNamespace(n=0, every=3)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        s.n += 1
        loss = model(x).square().mean() / s.every
        loss.backward()
        if is_last := s.n % s.every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach(), is_last

    step = wrap(step)
    for n in range(10):
        if n == 6:
            s.every = 2
        yield step(batch(lib, n)), weights(model)


@case
def a_memo_with_a_limit(lib: Any, wrap: Any) -> Seen:
    memo: OrderedDict[int, Any] = OrderedDict()

    def table(n):
        if n not in memo:
            memo[n] = lib.arange(n).float()
            if len(memo) > 2:
                memo.popitem(last=False)
        memo.move_to_end(n)
        return memo[n]

    step = wrap(lambda x: x * table(x.shape[0]))
    for n in range(8):
        yield step(ramp(lib, (3, 4, 3, 5)[n % 4])), list(memo)


@case
def a_depth_in_a_context_variable(lib: Any, wrap: Any) -> Seen:
    def nested(x, depth):
        token = DEPTH.set(DEPTH.get() + 1)
        try:
            return x * DEPTH.get() if depth == 0 else nested(x + 1, depth - 1)
        finally:
            DEPTH.reset(token)

    step = wrap(lambda x: nested(x, 2))
    for n in range(5):
        if n == 3:
            DEPTH.set(10)
        yield step(ramp(lib, 3)), DEPTH.get()
    DEPTH.set(0)


@case
def options_of_a_thread(lib: Any, wrap: Any) -> Seen:
    class Options(threading.local):
        def __init__(self):
            self.gain = 1.0

    options = Options()
    step = wrap(lambda x: x * options.gain)

    def run(gain, into):
        options.gain = gain
        into.append(step(ramp(lib, 3)))

    for n in range(4):
        into: list[Any] = []
        thread = threading.Thread(target=run, args=(2.0 + n, into))
        thread.start()
        thread.join()
        if n == 2:
            options.gain = 7.0
        yield into, step(ramp(lib, 3))


@case
def warmup_and_cosine_by_hand(lib: Any, wrap: Any) -> Seen:
    model, s = layer(lib), SimpleNamespace(step=0)
    optimizer = lib.optim.AdamW(model.parameters(), lr=0.1)

    def rate(step, warm=3, total=10):
        if step < warm:
            return 0.1 * (step + 1) / warm
        return 0.05 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))

    def step(x):
        for group in optimizer.param_groups:
            group["lr"] = rate(s.step)
        s.step += 1
        return trained(lib, model, optimizer, x)

    step = wrap(step)
    for n in range(9):
        yield step(batch(lib, n)), optimizer.param_groups[0]["lr"], weights(model)


@case
def star_arguments_and_keywords(lib: Any, wrap: Any) -> Seen:
    def combine(*parts, gain=1.0, **named):
        return sum(parts) * gain + sum(v * k for k, v in enumerate(named.values()))

    def step(x, *rest, **options):
        first, *others = rest
        return combine(x, first, *others, **{k: v for k, v in options.items() if v is not None})

    step = wrap(step)
    for n in range(7):
        options = {"gain": 0.5 * n, "a": ramp(lib, 3), "b": None if n % 2 else ramp(lib, 3) * n}
        yield step(ramp(lib, 3), *[ramp(lib, 3) * k for k in range(1 + n % 3)], **options)


@case
def a_property_with_a_cache(lib: Any, wrap: Any) -> Seen:
    class Mixer:
        def __init__(self):
            self.raw, self._cache, self.made = leaf(lib, 1.0, 2.0, 3.0), None, 0

        @property
        def mix(self):
            if self._cache is None:
                self._cache = lib.softmax(self.raw.detach(), 0)
                self.made += 1
            return self._cache

        def invalidate(self):
            self._cache = None

    mixer = Mixer()
    step = wrap(lambda x: x * mixer.mix)
    for n in range(7):
        if n == 4:
            mixer.raw = leaf(lib, 3.0, 2.0, 1.0)
            mixer.invalidate()
        yield step(ramp(lib, 3)), mixer.made


@case
def pairs_of_a_batch(lib: Any, wrap: Any) -> Seen:
    def step(parts):
        near = [(a - b).square().sum() for a, b in itertools.pairwise(parts)]
        far = [a @ b for a, b in itertools.combinations(parts, 2)]
        return lib.stack(near).mean() - lib.stack(far).mean(), dict(zip("ab", parts, strict=False))

    step = wrap(step)
    for n in range(6):
        yield step([ramp(lib, 3) * k + n for k in range(2 + n % 2)])


@case
def an_error_in_a_callback(lib: Any, wrap: Any) -> Seen:
    s = SimpleNamespace(n=0, log=[])

    def callback(n):
        if n % 4 == 3:
            raise RuntimeError(f"user: call {n}")

    def step(x):
        s.n += 1
        s.log.append(s.n)
        callback(s.n)
        s.log.append(-s.n)
        return x * s.n

    step = wrap(step)
    for _ in range(9):
        yield attempt(step, ramp(lib, 3)), s.n, s.log
