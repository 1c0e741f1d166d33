"""Names that the step makes itself: attributes, globals and entries that did not exist before, that
exist at times, or that the caller deletes."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

from .registry import Seen, batch, case, layer, leaf, mlp, weights


def of_a_class() -> Any:
    class Plain:
        pass

    return Plain


def of_a_metaclass() -> Any:
    class Meta(type):
        pass

    class Plain(metaclass=Meta):
        pass

    return Plain


def case_of(name: str, make: Callable[[Any], Any], body: Callable[[Any, Any, int], Any]) -> None:
    def situation(lib: Any, wrap: Any) -> Seen:
        s = make(lib)
        step = wrap(lambda x, n: body(s, x, n))
        for n in range(9):
            if n == 6 and hasattr(s, "other"):
                del s.other
            yield step(batch(lib, n), n % 2), getattr(s, "other", "none")

    situation.__name__ = name
    situation.__module__ = __name__
    case(situation)


def keeps_its_argument(s: Any, x: Any, n: int) -> Any:
    s.other = x


def keeps_a_result(s: Any, x: Any, n: int) -> Any:
    s.other = x * 2
    return x + 1


def keeps_at_times(s: Any, x: Any, n: int) -> Any:
    if n:
        s.other = x
    return x * 2


def makes_what_is_missing(s: Any, x: Any, n: int) -> Any:
    try:
        return x + s.other
    except AttributeError:
        s.other = 4.0
        return x


def makes_and_deletes(s: Any, x: Any, n: int) -> Any:
    if n and hasattr(s, "other"):
        del s.other
    elif not n:
        s.other = 3.0
    return x


def has_a_default(s: Any, x: Any, n: int) -> Any:
    x = x + getattr(s, "other", 1.0)
    s.other = 2.0
    return x


OWNERS: dict[str, Callable[[Any], Any]] = {
    "instance": lambda lib: of_a_class()(),
    "class": lambda lib: of_a_class(),
    "class_with_a_metaclass": lambda lib: of_a_metaclass(),
    "python_module": lambda lib: types.ModuleType("owner_of_the_case"),
    "optimizer": lambda lib: lib.optim.SGD([leaf(lib, 1.0)], lr=0.1),
    "layer": lambda lib: layer(lib),
    "partial": lambda lib: functools.partial(len),
}
BODIES = (
    keeps_its_argument, keeps_a_result, keeps_at_times, makes_what_is_missing, makes_and_deletes,
    has_a_default,
)  # fmt: skip
for _owner, _make in OWNERS.items():
    for _body in BODIES:
        case_of(f"{_owner}_that_{_body.__name__}", _make, _body)


def case_of_globals(name: str, body: str) -> None:
    def situation(lib: Any, wrap: Any) -> Seen:
        space = {"w": leaf(lib, 1.0, 2.0, 3.0)}
        exec(f"def step(x, n):\n    global NEW\n    {body}\n    return x * 2\n", space)
        step = wrap(space["step"])
        for n in range(9):
            if n == 6:
                space.pop("NEW", None)
            yield step(batch(lib, n), n % 2), space.get("NEW", "none")

    situation.__name__ = name
    situation.__module__ = __name__
    case(situation)


for _name, _text in {
    "a_global_that_is_made": "NEW = x",
    "a_global_that_is_made_at_times": "if n: NEW = x + 1",
    "a_global_that_is_missing_at_first": "try: return x + NEW\n    except NameError: NEW = 5.0",
    "a_global_that_is_made_and_deleted": "if 'NEW' in globals(): del NEW\n    else: NEW = 3.0",
    "a_global_by_its_table": "globals()['NEW'] = x",
}.items():
    case_of_globals(_name, _text)


@case
def the_gradient_kept_under_a_new_name(lib: Any, wrap: Any) -> Seen:
    class Trainer:
        def __init__(self):
            self.model = layer(lib)
            self.optimizer = lib.optim.SGD(self.model.parameters(), lr=0.1)

        def step(self, x):
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.grad = self.model.weight.grad
            self.optimizer.step()
            return loss.detach()

    trainer = Trainer()
    step = wrap(trainer.step)
    for n in range(8):
        if n == 5:
            del trainer.grad
        yield step(batch(lib, n)), trainer.grad, weights(trainer.model)


@case
def the_gradient_in_a_container_under_a_new_name(lib: Any, wrap: Any) -> Seen:
    weight = leaf(lib, 1.0, 2.0, 3.0)
    box = of_a_class()()

    def step(x):
        (x * weight).sum().backward()
        box.all = {"w": weight, "g": [weight.grad]}

    step = wrap(step)
    for n in range(6):
        step(batch(lib, n))
        yield box.all["g"], box.all["w"] is weight, box.all["g"][0] is weight.grad


@case
def the_last_input_of_a_layer_by_a_hook(lib: Any, wrap: Any) -> Seen:
    model = mlp(lib)

    def keep(module, args, out):
        module.seen, module.last_input = getattr(module, "seen", 0) + 1, args[0]

    for part in model:
        part.register_forward_hook(keep)
    step = wrap(lambda x: model(x).sum())
    for n in range(7):
        if n == 4:
            del model[1].seen
        yield step(batch(lib, n)), [(part.seen, part.last_input) for part in model]


@case
def attributes_that_a_plan_does_not_leave(lib: Any, wrap: Any) -> Seen:
    box = of_a_class()()

    def step(x):
        box.kept = x * 2
        return box.kept.sum()

    step = wrap(step)
    for n in range(5):
        if hasattr(step, "plan") and n in (0, 3):
            with contextlib.suppress(RuntimeError):
                step.plan(batch(lib, n))
        if n == 0:
            yield hasattr(box, "kept")
        yield step(batch(lib, n)), box.kept
