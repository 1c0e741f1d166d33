"""The spellings of the step of ``bench/call.py``: how tensors and numbers get in, what is returned,
and the state of Python that is read and changed."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from bench.call_parts import SPELLINGS, Call, Parts, spelling


@dataclass
class Batch:
    x: Any
    y: Any


class Pair(NamedTuple):
    x: Any
    y: Any


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
