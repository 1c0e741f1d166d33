"""What may change between two calls of a compiled function: it is noticed, or read at run time."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

import evergrad as eg
from evergrad import nn
from evergrad.nn.hooks import HookTables, register_module_forward_hook

from .steps import Scenario, assert_alike, check, program_count, randn


class Training(Scenario):
    """A linear layer and Adam; subclasses change something in ``between``."""

    def __init__(self) -> None:
        self.model = nn.Linear(3, 2).double()
        self.optimizer = eg.optim.Adam(self.model.parameters(), lr=0.1)

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (randn(6, 3, seed=round),)

    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def watched(self) -> Any:
        return self.model.state_dict(), self.optimizer.state_dict()["state"]


class Reloaded(Training):
    def between(self, round: int) -> None:
        if round == 1:
            self.saved = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        if round == 3:
            self.model.load_state_dict(self.saved[0])
            self.optimizer.load_state_dict(self.saved[1])
        if round == 5:
            self.model.load_state_dict(self.saved[0], assign=True)


def test_loaded_states() -> None:
    check(Reloaded, 7)


class Forgetful(Training):
    def between(self, round: int) -> None:
        if round == 2:
            self.optimizer.state.clear()


def test_optimizer_state_cleared() -> None:
    check(Forgetful, 4)


class Regrouped(Training):
    def __init__(self) -> None:
        super().__init__()
        self.optimizer = eg.optim.Adam([self.model.weight], lr=0.1)

    def between(self, round: int) -> None:
        if round == 2:
            self.optimizer.add_param_group({"params": [self.model.bias], "lr": 0.5})


def test_a_group_added() -> None:
    check(Regrouped, 4)


class Replaced(Training):
    def between(self, round: int) -> None:
        if round == 2:
            self.model.weight.data = randn(2, 3, seed=9)
        if round == 3:
            self.model.weight = nn.Parameter(randn(2, 3, seed=19))
        if round == 4:
            self.model.bias.requires_grad_(False)
        if round == 5:
            self.model.bias = None


def test_parameters_replaced() -> None:
    check(Replaced, 7)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", randn(3))
        self.inner: Any = nn.Linear(3, 3).double()
        self.factor = 2.0
        self.factors = [1.0, 2.0]

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.factor * self.factors[0] + self.shift


class ModuleChanged(Scenario):
    def __init__(self) -> None:
        self.layer = Layer()
        self.dropout = nn.Dropout(0.5)

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (randn(6, 3, seed=round),)

    def between(self, round: int) -> None:
        if round == 1:
            self.layer.shift = randn(3, seed=5)
        if round == 2:
            self.layer.inner = nn.Tanh()
        if round == 3:
            self.layer.factor = 3.0
        if round == 4:
            self.dropout.p = 0.1
        if round == 5:
            self.layer.shift.mul_(2)
        if round == 6:
            self.layer.factors[0] = 7.0

    def step(self, x: Any) -> Any:
        return self.dropout(self.layer(x))


def test_parts_of_a_module() -> None:
    check(ModuleChanged, 7, programs=6)


def test_a_factor_set_to_the_same_number_changes_nothing() -> None:
    layer = Layer()
    compiled = eg.compile(lambda x: layer(x))
    for _ in range(3):
        layer.factor = float("2.0")
        compiled(randn(2, 3))
    assert program_count(compiled) == 1


class NumberRead(Scenario):
    """A number taken out of a tensor that the program itself does not read."""

    def __init__(self) -> None:
        self.scale = eg.tensor(2.0)

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (randn(3, seed=round),)

    def between(self, round: int) -> None:
        if round == 2:
            self.scale.fill_(5.0)

    def step(self, x: Any) -> Any:
        return x * self.scale.item()


def test_a_number_read_while_tracing() -> None:
    check(NumberRead, 4, programs=2)


class Unfrozen(Scenario):
    """A captured tensor that begins to require its gradient."""

    def __init__(self) -> None:
        self.first, self.second = randn(3).requires_grad_(), randn(3, seed=1)

    def between(self, round: int) -> None:
        self.second.requires_grad_(round >= 2)

    def step(self) -> Any:
        self.first.grad = self.second.grad = None
        loss = (self.first * self.second).sum().sin()
        loss.backward()
        return loss

    def watched(self) -> Any:
        return [t.grad for t in (self.first, self.second) if t.grad is not None]


def test_gradients_asked_for_later() -> None:
    check(Unfrozen, 4)


class RateInATensor(Training):
    def __init__(self) -> None:
        super().__init__()
        self.rate = eg.tensor(0.1, dtype=eg.float64)
        self.optimizer = eg.optim.Adam(self.model.parameters(), lr=self.rate)

    def between(self, round: int) -> None:
        if round == 2:
            self.rate.fill_(0.5)
        if round == 3:
            self.optimizer.param_groups[0]["lr"] = eg.tensor(0.2)
        if round == 4:
            self.optimizer.param_groups[0]["lr"] = 0.3


def test_a_rate_in_a_tensor() -> None:
    check(RateInATensor, 6)


class StateReplaced(Training):
    """What optimizers keep, exchanged behind their back."""

    def between(self, round: int) -> None:
        state = self.optimizer.state
        if round == 2:
            state[self.model.weight]["exp_avg"] = randn(2, 3, seed=8)
        if round == 3:
            self.optimizer.state = copy.deepcopy(state)
            self.optimizer.state.clear()
        if round == 4:
            del state[self.optimizer.param_groups[0]["params"].pop()]


def test_state_replaced() -> None:
    check(StateReplaced, 6)


class HookedLater(Training):
    """Hooks on everything: each is noticed when it comes and when it goes."""

    def between(self, round: int) -> None:
        if round == 1:
            self.handle = self.optimizer.register_step_pre_hook(self.halve)
        if round in (2, 4, 6):
            self.handle.remove()
        if round == 3:
            self.handle = register_module_forward_hook(lambda module, args, out: out * 2)
        if round == 5:
            self.handle = self.model.weight.register_post_accumulate_grad_hook(
                lambda p: self.halve(self.optimizer, (), {})
            )

    @staticmethod
    def halve(optimizer: Any, args: Any, kwargs: Any) -> None:
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad.mul_(0.5)


def test_hooks_that_come_and_go() -> None:
    check(HookedLater, 8)


class TablesWritten(ModuleChanged):
    """Parts of a module exchanged without its knowing."""

    def between(self, round: int) -> None:
        if round == 1:
            self.layer._buffers["shift"] = randn(3, seed=5)
        if round == 2:
            self.layer._modules.update(inner=nn.Tanh())
        if round == 3:
            self.layer.shift.data = randn(3, seed=6)
        if round == 4:
            self.layer.eval()
            self.dropout.eval()


def test_tables_of_a_module() -> None:
    check(TablesWritten, 6, programs=5)


def test_options_written_directly() -> None:
    """A rate is read at run time; whether something is zero, or a flag, is guarded."""
    weight = nn.Parameter(randn(3))
    optimizer = eg.optim.SGD([weight], lr=0.5)

    @eg.compile
    def step() -> None:
        weight.grad = eg.ones(3).double()
        optimizer.step()
        weight.grad = None

    group = optimizer.param_groups[0]
    for key, value, programs in (
        ("lr", 0.5, 1), ("lr", 0.25, 1), ("maximize", True, 2), ("maximize", False, 2),
        ("weight_decay", 0.1, 3), ("weight_decay", 0.2, 3), ("lr", 0.125, 3),
    ):  # fmt: skip
        group[key] = value
        before = weight.detach().clone()
        step()
        sign = -1 if group["maximize"] else 1
        slope = sign * eg.ones(3) + group["weight_decay"] * before
        assert_alike(weight, before - group["lr"] * slope)
        assert program_count(step) == programs


def test_nothing_is_asked_again_while_nothing_changes() -> None:
    scenario = Training()
    step = eg.compile(scenario.step)
    for round in range(3):
        step(*scenario.arguments(round))
    (known,) = step.variants.values()
    guards = known[-1].guards
    checked, options = guards.checked, guards.options.numbers_token
    for round in range(3):
        step(*scenario.arguments(round))
    assert (guards.checked, guards.options.numbers_token) == (checked, options)
    scenario.optimizer.param_groups[0]["lr"] = 0.3
    step(*scenario.arguments(0))
    assert guards.checked == checked  # the options alone are evaluated again
    assert guards.options.numbers_token is not options
    assert program_count(step) == 2


def test_modes_around_a_call() -> None:
    compiled = eg.compile(lambda x, y: x @ y)
    x = eg.randn(3, 3).requires_grad_()
    assert compiled(x, x).requires_grad
    with eg.no_grad():
        assert not compiled(x, x).requires_grad
    with eg.autocast("cpu", dtype=eg.bfloat16):
        assert compiled(x, x).dtype == eg.bfloat16
    assert compiled(x, x).dtype == eg.float32


def test_the_default_type() -> None:
    compiled = eg.compile(lambda x: x * eg.ones(3))
    x = eg.tensor([1, 2, 3])
    assert compiled(x).dtype == eg.float32
    eg.set_default_dtype(eg.float64)
    try:
        assert compiled(x).dtype == eg.float64
    finally:
        eg.set_default_dtype(eg.float32)
    assert compiled(x).dtype == eg.float32


def test_compiling_again_and_again_is_told() -> None:
    layer = Layer()
    compiled = eg.compile(lambda x: layer(x))
    with pytest.warns(RuntimeWarning, match="failed guard: the attributes"):
        for round in range(9):
            layer.name = f"layer {round}"
            assert_alike(compiled(randn(2, 3)), layer(randn(2, 3)))


def test_shapes_and_types_have_programs_of_their_own() -> None:
    compiled = eg.compile(lambda x: x * 2 + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(20):
            assert_alike(compiled(randn(n)), randn(n) * 2 + 1)
        assert compiled(eg.tensor([1])).dtype == eg.int64
        assert compiled(eg.tensor([1.0])).dtype == eg.float32
    assert program_count(compiled) == 22


def test_the_first_hook_of_all_modules_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there was no table of such hooks in the process when the program was made."""
    monkeypatch.setattr(HookTables, "everywhere", None)
    layer, seen = nn.Linear(2, 2), list[str]()
    step = eg.compile(lambda x: layer(x).sum())
    for _ in range(3):
        step(eg.ones(2))
    handle = register_module_forward_hook(lambda *_: seen.append("ran"))
    try:
        step(eg.ones(2))
    finally:
        handle.remove()
    assert seen == ["ran"]
