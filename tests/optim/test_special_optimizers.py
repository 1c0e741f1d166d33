"""Optimizers that are not elementwise or that PyTorch lacks: LBFGS, Muon, Lion, SparseAdam."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from twins import agree, refuse

from .optimizer_cases import Gradients, as_state_of, parameters, plain_state, train

# -- LBFGS --------------------------------------------------------------------------------------


def rosenbrock(x: Any) -> Any:
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def well(x: Any) -> Any:
    return ((x - 1) ** 2).sum() + (x**4).sum() + x.prod()


def minimise(ns: Any, loss_of: Any, start: Any, steps: int, **options: Any) -> Any:
    x = ns.nn.Parameter(ns.tensor(start, dtype=ns.float64))
    optimizer = ns.optim.LBFGS([x], **options)
    calls = 0

    def closure() -> Any:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = loss_of(x)
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure)) for _ in range(steps)]
    state = optimizer.state_dict()["state"][0]
    return losses, x, calls, state["n_iter"], state["func_evals"]


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.1},
        {"lr": 0.5, "max_iter": 4, "history_size": 2},
        {"line_search_fn": "strong_wolfe"},
        {"line_search_fn": "strong_wolfe", "max_iter": 7, "history_size": 3},
        {"line_search_fn": "strong_wolfe", "max_eval": 5},
        {"line_search_fn": "strong_wolfe", "lr": 0.01, "tolerance_change": 1e-3},
        {"lr": 0.3, "tolerance_grad": 1e-1},
    ],
)
@pytest.mark.parametrize("loss_of", [rosenbrock, well])
def test_lbfgs_goes_pytorchs_way(loss_of: Any, options: Any, torch: ModuleType) -> None:
    if loss_of is rosenbrock and "line_search_fn" not in options:
        options = {**options, "lr": options["lr"] / 100}
    agree(lambda ns: minimise(ns, loss_of, [-1.2, 1.0, 0.7], 5, **options), torch, 1e-6)


def test_lbfgs_finds_the_minimum() -> None:
    losses, x, *_ = minimise(
        evergrad, rosenbrock, [-1.2, 1.0], 10, line_search_fn="strong_wolfe", max_iter=20
    )
    assert losses[-1] < 1e-8
    np.testing.assert_allclose(x.detach().numpy(), [1.0, 1.0], atol=1e-4)


def test_lbfgs_over_several_parameters_and_from_a_state(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        params = parameters(ns, shapes=((2, 3), (3,)))
        target = ns.arange(2.0, dtype=ns.float64)
        optimizer = ns.optim.LBFGS(params, line_search_fn="strong_wolfe", max_iter=3)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((params[0] @ params[1].exp() - target) ** 2).sum() + (params[0] ** 4).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        saved = copy.deepcopy(optimizer.state_dict())
        optimizer = ns.optim.LBFGS(params, line_search_fn="strong_wolfe", max_iter=3)
        optimizer.load_state_dict(saved)
        optimizer.step(closure)
        return list(params), sorted(saved["state"][0])

    agree(program, torch, 1e-7)


@pytest.mark.parametrize(
    "act",
    [
        lambda ns, p: ns.optim.LBFGS([{"params": p[0]}, {"params": p[1]}]),
        lambda ns, p: ns.optim.LBFGS(p, lr=-1),
        lambda ns, p: ns.optim.LBFGS(p).step(),
        lambda ns, p: ns.optim.Muon(p, lr=-1),
        lambda ns, p: ns.optim.Muon(p),
        lambda ns, p: ns.optim.Muon(p[:1], adjust_lr_fn="other"),
        lambda ns, p: ns.optim.SparseAdam(p, lr=0),
        lambda ns, p: ns.optim.SparseAdam(p, eps=0),
        lambda ns, p: train(ns, ns.optim.SparseAdam(p), p, Gradients(ns), 1),
        lambda ns, p: ns.optim.Adafactor(p, beta2_decay=1),
        lambda ns, p: ns.optim.Adafactor(p, d=0.5),
        lambda ns, p: ns.optim.Adafactor(p, eps=(-1, 0.1)),
        lambda ns, p: ns.optim.Adadelta(p, rho=2),
        lambda ns, p: ns.optim.Rprop(p, etas=(2, 3)),
        lambda ns, p: ns.optim.NAdam(p, momentum_decay=-1),
        lambda ns, p: ns.optim.RMSprop(p, alpha=-1),
        lambda ns, p: ns.optim.Adagrad(p, lr_decay=-1),
        lambda ns, p: ns.optim.ASGD(p, weight_decay=-1),
    ],
)
def test_mistakes_are_refused(act: Any, torch: ModuleType) -> None:
    refuse(lambda ns: act(ns, parameters(ns)), torch)


# -- Muon ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}],
)
def test_muon(options: Any, torch: ModuleType) -> None:
    """The iteration runs in bfloat16, so both agree only as far as that goes."""

    def program(ns: Any) -> Any:
        params = parameters(ns, "float32", ((6, 4), (3, 5)))
        optimizer = ns.optim.Muon(params, lr=0.02, **options)
        train(ns, optimizer, params, Gradients(ns), 10)
        return list(params), plain_state(optimizer.state_dict())["param_groups"]

    agree(program, torch, 5e-3)


def test_muon_state_passes_between_libraries(torch: ModuleType) -> None:
    params = parameters(evergrad, "float32", ((6, 4),))
    optimizer = evergrad.optim.Muon(params)
    train(evergrad, optimizer, params, Gradients(evergrad), 2)
    other = torch.optim.Muon(parameters(torch, "float32", ((6, 4),)))
    other.load_state_dict(as_state_of(torch, plain_state(optimizer.state_dict())))
    optimizer.load_state_dict(as_state_of(evergrad, plain_state(other.state_dict())))


# -- Lion ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("maximize", [False, True])
def test_lion_is_that_of_its_paper(maximize: bool) -> None:
    lr, beta1, beta2, decay = 0.05, 0.9, 0.99, 0.1
    params = parameters(evergrad)
    expected = [p.detach().numpy().copy() for p in params]
    means = [np.zeros_like(e) for e in expected]
    optimizer = evergrad.optim.Lion(
        params, lr=lr, betas=(beta1, beta2), weight_decay=decay, maximize=maximize
    )
    gradients = Gradients(evergrad)
    for _ in range(20):
        gradients.set_on(params)
        for i, p in enumerate(params):
            g = -p.grad.numpy() if maximize else p.grad.numpy()
            update = np.sign(beta1 * means[i] + (1 - beta1) * g)
            expected[i] -= lr * (update + decay * expected[i])
            means[i] = beta2 * means[i] + (1 - beta2) * g
        optimizer.step()
    for p, value in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), value, rtol=1e-12)
    assert list(optimizer.state[params[0]]) == ["exp_avg"]
