"""Training steps, compiled: parameters, gradients, state and random streams as in eager mode."""

from __future__ import annotations

from typing import Any

import pytest

import evergrad as eg
from evergrad import nn
from evergrad.utils.checkpoint import checkpoint

from .steps import Scenario, assert_alike, check, program_count, randn


class Training(Scenario):
    """A small model trained by plain steps; subclasses change a part of it."""

    def __init__(self) -> None:
        self.model = self.make_model().double()
        self.optimizer = self.make_optimizer()

    def make_model(self) -> Any:
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def make_optimizer(self) -> Any:
        return eg.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (randn(6, 3, seed=round),)

    def loss(self, x: Any) -> Any:
        return self.model(x).square().mean()

    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x)
        loss.backward()
        self.optimizer.step()
        return loss

    def watched(self) -> Any:
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        return self.model.state_dict(), grads, self.optimizer.state_dict()["state"]


def test_a_step() -> None:
    """One program while there are no gradients yet, one while there are."""
    check(Training, 4, programs=2)


class Clipped(Training):
    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        loss = self.loss(x)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        nn.utils.clip_grad_value_(self.model.parameters(), 0.1)
        self.optimizer.step()
        return loss, norm


def test_clipped_gradients() -> None:
    check(Clipped, 4, programs=2)


class Scheduled(Training):
    """A schedule stepped outside of the compiled step."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = eg.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)

    def between(self, round: int) -> None:
        if round:
            self.schedule.step()


def test_schedules_compile_nothing_anew() -> None:
    check(Scheduled, 6, programs=2)


class ScheduledInside(Scheduled):
    """A schedule stepped by the step itself."""

    def between(self, round: int) -> None:
        pass

    def step(self, x: Any) -> Any:
        loss = super().step(x)
        self.schedule.step()
        return loss

    def watched(self) -> Any:
        return super().watched(), self.schedule.get_last_lr(), self.schedule.last_epoch


def test_a_schedule_inside_is_one_program() -> None:
    check(ScheduledInside, 5, programs=1)


class WithModes(Training):
    """Dropout and batch statistics, in training and evaluation mode by turns."""

    def make_model(self) -> Any:
        return nn.Sequential(
            nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4, 2),
        )  # fmt: skip

    def between(self, round: int) -> None:
        self.model.train(round not in (2, 4))


def test_dropout_and_batch_norm() -> None:
    check(WithModes, 6, programs=3)


class MicroBatches(Training):
    """Gradients of several parts of a batch summed inside of the step."""

    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        total: Any = 0
        for part in x.split(2):
            loss = self.loss(part) / 3
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        return total


def test_accumulation_inside() -> None:
    check(MicroBatches, 4, programs=2)


class Accumulating(Training):
    """Gradients that stay behind and are added to by the next call."""

    def between(self, round: int) -> None:
        if round in (3, 6):
            self.model.zero_grad()
        if round == 5:
            self.model.zero_grad(set_to_none=False)

    def step(self, x: Any) -> Any:
        loss = self.loss(x)
        loss.backward()
        return loss


def test_accumulation_across_calls() -> None:
    check(Accumulating, 8, programs=2)


def test_accumulation_keeps_the_gradient_tensor() -> None:
    scenario = Accumulating()
    step = eg.compile(scenario.step)
    step(randn(6, 3))
    grad = scenario.model[0].weight.grad
    before = grad.clone()
    step(randn(6, 3))
    assert scenario.model[0].weight.grad is grad
    assert_alike(grad, before * 2)


class OptimizerAlone(Training):
    """Only the update is compiled; gradients are new tensors in every round."""

    def between(self, round: int) -> None:
        self.model.zero_grad()
        self.loss(randn(6, 3, seed=round)).backward()

    def arguments(self, round: int) -> tuple[Any, ...]:
        return ()

    def step(self) -> None:  # type: ignore[override]
        self.optimizer.step()


def test_an_optimizer_alone() -> None:
    check(OptimizerAlone, 5, programs=1)


class Zeroing(Training):
    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.loss(x)
        loss.backward()
        self.optimizer.step()
        return loss


def test_gradients_set_to_zero() -> None:
    check(Zeroing, 5, programs=2)


class Adversaries(Scenario):
    """Two models with an optimizer each, the one trained against the other."""

    def __init__(self) -> None:
        self.maker, self.judge = nn.Linear(2, 3).double(), nn.Linear(3, 1).double()
        self.optimizers = [eg.optim.Adam(m.parameters(), lr=0.1) for m in (self.maker, self.judge)]

    def arguments(self, round: int) -> tuple[Any, ...]:
        return randn(4, 2, seed=round), randn(4, 3, seed=round + 50)

    def step(self, z: Any, x: Any) -> Any:
        softplus = nn.functional.softplus
        made = self.maker(z)
        self.optimizers[1].zero_grad()
        judged = softplus(-self.judge(x)).mean() + softplus(self.judge(made.detach())).mean()
        judged.backward()
        self.optimizers[1].step()
        self.optimizers[0].zero_grad()
        fooled = softplus(-self.judge(made)).mean()
        fooled.backward()
        self.optimizers[0].step()
        return judged, fooled

    def watched(self) -> Any:
        models = (self.maker, self.judge)
        return [(p, p.grad) for m in models for p in m.parameters()]


def test_two_models() -> None:
    check(Adversaries, 5)


class Penalised(Training):
    """A loss that holds a gradient."""

    def loss(self, x: Any) -> Any:
        x = x.detach().requires_grad_()
        (slope,) = eg.autograd.grad(self.model(x).sum(), x, create_graph=True)
        return (slope.norm(dim=1) - 1).square().mean()


def test_a_gradient_inside_the_loss() -> None:
    check(Penalised, 4)


class InTurns(Training):
    """An update at every third call only, by an argument."""

    def arguments(self, round: int) -> tuple[Any, ...]:
        return randn(6, 3, seed=round), round % 3 == 2

    def step(self, x: Any, update: bool) -> Any:  # type: ignore[override]
        loss = self.loss(x)
        loss.backward()
        if update:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss


def test_updates_in_turns() -> None:
    check(InTurns, 9, programs=3)


@pytest.mark.parametrize("wrap", ["spectral_norm", "weight_norm"])
def test_parametrizations(wrap: str) -> None:
    class Parametrized(Training):
        def make_model(self) -> Any:
            return getattr(nn.utils.parametrizations, wrap)(nn.Linear(3, 2))

    check(Parametrized, 4)


class Hooked(Training):
    """Hooks on tensors and modules, before and after they were compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.model[0].weight.register_hook(lambda g: g * 2)
        self.model[1].register_forward_hook(lambda module, args, out: out * 0.5)
        self.model[2].register_full_backward_hook(lambda module, into, out: (into[0] * 3,))
        self.model[2].bias.register_post_accumulate_grad_hook(self.descend)

    @staticmethod
    def descend(parameter: Any) -> None:
        with eg.no_grad():
            parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None

    def between(self, round: int) -> None:
        if round == 2:
            self.model[1].register_forward_hook(lambda module, args, out: out * 0.25)
        if round == 3:
            self.handle = self.model[2].weight.register_hook(lambda g: -g)
        if round == 4:
            self.handle.remove()


def test_hooks() -> None:
    check(Hooked, 6)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(use_reentrant: bool) -> None:
    class Checkpointed(Training):
        def make_model(self) -> Any:
            return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2))

        def loss(self, x: Any) -> Any:
            out = checkpoint(self.model, x, use_reentrant=use_reentrant)
            return out.square().mean()

    check(Checkpointed, 3)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_writes_statistics_twice(use_reentrant: bool) -> None:
    """As in eager mode, where the second run of the function updates them again."""

    class Checkpointed(Training):
        def make_model(self) -> Any:
            return nn.Sequential(
                nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Tanh(), nn.Linear(4, 2)
            )

        def loss(self, x: Any) -> Any:
            out = checkpoint(self.model, x, use_reentrant=use_reentrant)
            return out.square().mean()

    check(Checkpointed, 3)


@pytest.mark.parametrize("average", ["equal", "exponential", "own"])
def test_an_averaged_model_inside(average: str) -> None:
    """One program for the first model of the average, one for the others."""
    utils = eg.optim.swa_utils
    options: dict[str, Any] = {
        "equal": {},
        "exponential": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
        "own": {"avg_fn": lambda held, now, count: held + (now - held) / (count + 1)},
    }[average]

    class Averaging(Training):
        def __init__(self) -> None:
            super().__init__()
            self.averaged = utils.AveragedModel(self.model, **options)

        def step(self, x: Any) -> Any:
            loss = super().step(x)
            self.averaged.update_parameters(self.model)
            return loss

        def watched(self) -> Any:
            return super().watched(), self.averaged.state_dict()

    check(Averaging, 5, programs=2)


class InPlace(Scenario):
    """Writes through views, slices and diagonals of outside memory."""

    def __init__(self) -> None:
        self.base = randn(4, 3)
        self.part = self.base[1:3, ::2]

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (randn(3, seed=round),)

    def step(self, x: Any) -> Any:
        self.base[1].add_(x)
        self.base[:, 0] *= 2
        turned = self.base.t()
        turned[2, 3] = x[0]
        self.base.view(-1)[::5].neg_()
        self.part.add_(x[:2])
        self.base.diagonal().mul_(0.5)
        own = x.clone()
        own[1:] = own[:-1].clone()
        return own, turned.sum()

    def watched(self) -> Any:
        return self.base, self.part


def test_writes_through_views() -> None:
    check(InPlace, 4, programs=1)


class ChangingPlaces(Scenario):
    """Tensors of the outside that end at what others held before."""

    def __init__(self) -> None:
        self.ring = [randn(3, 2, seed=n) for n in range(3)]
        self.square, self.turned = randn(4, 4, seed=4), randn(4, 4, seed=5)
        self.empty = [randn(0, 2), randn(0, 2)]

    def step(self) -> Any:
        for tensors in (self.ring, [self.square, self.turned.t()], self.empty):
            before = [tensor.clone() for tensor in tensors]
            for tensor, value in zip(tensors, [*before[1:], before[0]], strict=True):
                tensor.copy_(value)
        return self.ring[0] + 1

    def watched(self) -> Any:
        return self.ring, self.square, self.turned, self.empty


def test_tensors_change_places() -> None:
    check(ChangingPlaces)


def test_two_functions_of_one_model() -> None:
    scenario = Training()
    train, evaluate = eg.compile(scenario.step), eg.compile(lambda x: scenario.model(x))
    x = randn(6, 3)
    for _ in range(3):
        train(x)
        assert_alike(evaluate(x), scenario.model(x))
    assert program_count(evaluate) == 1


@pytest.mark.parametrize("seed", range(3))
def test_random_streams(seed: int) -> None:
    def draw(x: Any) -> Any:
        return (
            eg.rand(3) + x * eg.randn(3), eg.randint(0, 10, (4,)), eg.randperm(5),
            eg.bernoulli(eg.full((5,), 0.5)), nn.functional.dropout(x, 0.3),
        )  # fmt: skip

    compiled, x = eg.compile(draw), randn(3).float()
    for _ in range(2):
        eg.manual_seed(seed)
        expected, state = draw(x), eg.get_rng_state()
        eg.manual_seed(seed)
        assert_alike(compiled(x), expected, 1e-6)
        assert eg.get_rng_state().tolist() == state.tolist()


def test_a_generator_of_its_own() -> None:
    generator = eg.Generator().manual_seed(3)

    def draw(x: Any) -> Any:
        return eg.rand(3, generator=generator) + x

    x = randn(3).float()
    expected = [draw(x) for _ in range(3)]
    generator.manual_seed(3)
    compiled = eg.compile(draw)
    assert_alike([compiled(x) for _ in range(3)], expected, 1e-6)
