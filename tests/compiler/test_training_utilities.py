"""What training steps do besides: clipping, reparametrized weights, agents, autoencoders, LBFGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import distributions as D
from evergrad import nn, optim
from evergrad.nn import functional as F


def floats(*shape: int, seed: int = 0) -> eg.Tensor:
    return eg.tensor(np.random.default_rng([seed, *shape]).normal(size=shape).astype("f4"))


class Run:
    """A model stepped eagerly or compiled; ``numbers`` are all that can differ."""

    def __init__(self, make: Callable[[Run], Any], *, compiled: bool) -> None:
        eg.manual_seed(0)
        self.model: Any = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        self.opt: Any = None
        step = make(self)
        self.step = eg.compile(step) if compiled else step

    def numbers(self, result: Any) -> list[Any]:
        results = list(result) if isinstance(result, tuple) else [result]
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        kept = list(self.model.state_dict().values())
        return [t.detach().numpy().copy() for t in (*results, *kept, *grads)]


def check(make: Callable[[Run], Any], calls: int = 4, native: bool = True) -> None:
    """Eager and compiled runs agree at every call; there are no NumPy calls in the program."""
    runs = [Run(make, compiled=c) for c in (False, True)]
    for number in range(calls):
        x = floats(5, 4, seed=number)
        found = []
        for run in runs:
            eg.manual_seed(number)
            found.append(run.numbers(run.step(x)))
        assert len(found[0]) == len(found[1])
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(b, a, rtol=5e-5, atol=2e-6)
    if native:
        assert "call " not in str(runs[1].step.explain(floats(5, 4)))


# -- clipping -----------------------------------------------------------------------------------


def clipping(clip: Callable[[Any], Any]) -> Callable[[Run], Any]:
    def make(run: Run) -> Any:
        run.opt = optim.SGD(run.model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any) -> Any:
            run.opt.zero_grad()
            loss = F.mse_loss(run.model(x), x[:, :2])
            loss.backward()
            norm = clip(list(run.model.parameters()))
            run.opt.step()
            return (loss.detach(), norm) if norm is not None else loss.detach()

        return step

    return make


CLIPS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda p: nn.utils.clip_grad_norm_(p, 0.1),
    "norm_of_one": lambda p: nn.utils.clip_grad_norm_(p[0], 0.1),
    "norm_inf": lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=float("inf")),
    "norm_1": lambda p: nn.utils.clip_grad_norm_(p, 0.1, norm_type=1),
    "norm_3": lambda p: nn.utils.clip_grad_norm_(p, 0.1, 3.0),
    "norm_foreach": lambda p: nn.utils.clip_grad_norm_(p, 0.1, foreach=True),
    "norm_checked": lambda p: nn.utils.clip_grad_norm_(p, 0.1, error_if_nonfinite=True),
    "value": lambda p: nn.utils.clip_grad_value_(p, 0.05),
    "value_foreach": lambda p: nn.utils.clip_grad_value_(p, 0.05, foreach=True),
    "by_parts": lambda p: nn.utils.clip_grads_with_norm_(
        p, 0.1, nn.utils.get_total_norm([q.grad for q in p])
    ),
}


@pytest.mark.parametrize("name", CLIPS)
def test_clipping(name: str) -> None:
    check(clipping(CLIPS[name]))


def test_clipping_by_hand() -> None:
    def clip(parameters: Any) -> Any:
        total = sum(p.grad.pow(2).sum() for p in parameters).sqrt()
        for p in parameters:
            p.grad.mul_((0.1 / (total + 1e-6)).clamp(max=1.0))
        return total

    check(clipping(clip))


def test_a_norm_that_is_not_finite_is_refused_and_nothing_is_written() -> None:
    runs = [Run(clipping(CLIPS["norm_checked"]), compiled=c) for c in (False, True)]
    errors = []
    for run in runs:
        run.step(floats(5, 4))
        before = [p.detach().numpy().tobytes() for p in run.model.parameters()]
        with pytest.raises(RuntimeError) as error:
            run.step(floats(5, 4) * float("inf"))
        errors.append(str(error.value))
        assert [p.detach().numpy().tobytes() for p in run.model.parameters()] == before
    assert errors[0] == errors[1]


# -- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "vector"])
def test_utilities_of_weights(name: str) -> None:
    def make(run: Run) -> Any:
        if name != "vector":
            wrap = getattr(nn.utils.parametrizations, name)
            run.model = nn.Sequential(wrap(nn.Linear(4, 6)), nn.Tanh(), wrap(nn.Linear(6, 2)))
        run.opt = optim.Adam(run.model.parameters(), lr=0.01)

        def step(x: Any) -> Any:
            run.opt.zero_grad()
            flat = nn.utils.parameters_to_vector(run.model.parameters())
            loss = F.mse_loss(run.model(x), x[:, :2]) + 1e-3 * flat.norm()
            loss.backward()
            run.opt.step()
            return loss.detach()

        return step

    check(make)


@pytest.mark.parametrize("make_opt", [
    lambda p: optim.Adam(p, lr=0.01, foreach=True),
    lambda p: optim.AdamW(p, lr=0.01, fused=True),
    lambda p: optim.SGD(p, lr=0.1, foreach=True, momentum=0.5),
    lambda p: optim.RMSprop(p, lr=0.01, foreach=True),
])  # fmt: skip
def test_foreach_and_fused_optimizers(make_opt: Any) -> None:
    def make(run: Run) -> Any:
        run.opt = make_opt(run.model.parameters())

        def step(x: Any) -> Any:
            run.opt.zero_grad(set_to_none=False)
            loss = F.mse_loss(run.model(x), x[:, :2])
            loss.backward()
            run.opt.step()
            return loss.detach()

        return step

    check(make)


# -- agents and autoencoders --------------------------------------------------------------------


def test_a_step_of_proximal_policy_optimization() -> None:
    def make(run: Run) -> Any:
        run.model = nn.ModuleDict({"policy": nn.Linear(4, 3), "value": nn.Linear(4, 1)})
        run.opt = optim.Adam(run.model.parameters(), lr=0.01)

        def step(x: Any) -> Any:
            with eg.no_grad():
                old = D.Categorical(logits=run.model["policy"](x))
                action = old.sample()
                before, reward = old.log_prob(action), x.sum(1)
            now = D.Categorical(logits=run.model["policy"](x))
            ratio = (now.log_prob(action) - before).exp()
            value = run.model["value"](x).squeeze(1)
            advantage = (reward - value).detach()
            gain = eg.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = F.mse_loss(value, reward) - gain - 0.01 * now.entropy().mean()
            run.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(run.model.parameters(), 0.5)
            run.opt.step()
            return loss.detach(), action

        return step

    check(make, native=False)  # categories are drawn by NumPy


def test_a_gaussian_policy() -> None:
    def make(run: Run) -> Any:
        run.opt = optim.Adam(run.model.parameters(), lr=0.01)
        spread = nn.Parameter(eg.zeros(2))
        run.model.register_parameter("spread", spread)

        def step(x: Any) -> Any:
            d = D.Independent(
                D.Normal(run.model[2](run.model[1](run.model[0](x))), spread.exp()), 1
            )
            action = d.sample()
            loss = -(d.log_prob(action) * x[:, 0]).mean() - 0.01 * d.entropy().mean()
            run.opt.zero_grad()
            loss.backward()
            run.opt.step()
            return loss.detach(), action

        return step

    check(make, native=False)


def test_a_step_of_a_variational_autoencoder() -> None:
    def make(run: Run) -> Any:
        run.model = nn.ModuleDict({"encode": nn.Linear(4, 6), "decode": nn.Linear(3, 4)})
        run.opt = optim.Adam(run.model.parameters(), lr=0.01)

        def step(x: Any) -> Any:
            mean, log_variance = run.model["encode"](x).chunk(2, 1)
            q = D.Normal(mean, (0.5 * log_variance).exp())
            z = q.rsample()
            p = D.Bernoulli(logits=run.model["decode"](z))
            kl = D.kl_divergence(q, D.Normal(eg.zeros(3), eg.ones(3))).sum(1)
            loss = (kl - p.log_prob((x > 0).float()).sum(1)).mean()
            run.opt.zero_grad()
            loss.backward()
            run.opt.step()
            return loss.detach(), z

        return step

    check(make, native=False)


# -- LBFGS --------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_with_a_compiled_closure(search: str | None) -> None:
    """The optimizer runs eagerly; what it evaluates is compiled."""
    results = []
    for compiled in (False, True):
        eg.manual_seed(0)
        model = nn.Linear(4, 2).double()  # a line search magnifies rounding
        opt = optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn=search)
        x, y = floats(8, 4).double(), floats(8, 2).double()

        def closure(model: Any = model, opt: Any = opt, x: Any = x, y: Any = y) -> Any:
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss.detach()

        evaluate = eg.compile(closure) if compiled else closure
        losses = [float(opt.step(evaluate)) for _ in range(4)]
        results.append([*losses, *model.weight.detach().flatten().tolist()])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)
    assert results[0][3] < results[0][0]
