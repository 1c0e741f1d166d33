"""Every optimizer against PyTorch's: the numbers, the state, and that steps cost no memory."""

from __future__ import annotations

import copy
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.memory.ledger import LEDGER
from twins import agree, refuse

from .optimizer_cases import (
    CASES,
    NAMES,
    NOT_ELEMENTWISE,
    Gradients,
    as_state_of,
    ids,
    make,
    parameters,
    plain_state,
    train,
)

every_case = pytest.mark.parametrize(("name", "options"), CASES, ids=[ids(c) for c in CASES])
every_optimizer = pytest.mark.parametrize("name", NAMES)


def assert_states_equal(found: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_states_equal(found[key], expected[key], tolerance)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_states_equal(a, b, tolerance)
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        assert found == expected


def assert_parameters_equal(ours: Any, theirs: Any, tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        x, y = a.detach().double().numpy(), b.detach().double().numpy()
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


# -- the numbers --------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize(("kind", "tolerance"), [("float64", 1e-9), ("float32", 2e-5)])
def test_fifty_steps(
    name: str, options: dict[str, Any], kind: str, tolerance: float, torch: ModuleType
) -> None:
    results = []
    for ns in (evergrad, torch):
        params = parameters(ns, kind)
        optimizer = getattr(ns.optim, name)(params, **options)
        train(ns, optimizer, params, Gradients(ns), 50)
        results.append((params, plain_state(optimizer.state_dict())))
    (ours, our_state), (theirs, their_state) = results
    assert_parameters_equal(ours, theirs, tolerance)
    assert_states_equal(our_state, their_state, tolerance)


@every_optimizer
@pytest.mark.parametrize(("kind", "tolerance"), [("float16", 1e-2), ("bfloat16", 6e-2)])
def test_parameters_of_16_bits(name: str, kind: str, tolerance: float, torch: ModuleType) -> None:
    results = []
    for ns in (evergrad, torch):
        params = parameters(ns, kind)
        train(ns, make(ns, name, params, lr=0.01), params, Gradients(ns), 10)
        assert all(p.dtype is getattr(ns, kind) for p in params)
        results.append(params)
    assert_parameters_equal(*results, tolerance)


@every_case
def test_complex_parameters(name: str, options: dict[str, Any], torch: ModuleType) -> None:
    results = []
    for ns in (evergrad, torch):
        parts = parameters(ns, "float64", ((3, 4, 2), (5, 2)))
        params = [ns.nn.Parameter(ns.view_as_complex(p.detach())) for p in parts]
        optimizer = getattr(ns.optim, name)(params, **options)
        gradients = Gradients(ns)
        try:
            for _ in range(10):
                gradients.set_on(parts)
                for p, part in zip(params, parts, strict=True):
                    p.grad = ns.view_as_complex(part.grad)
                optimizer.step()
        except RuntimeError as error:
            results.append(str(error))
            continue
        results.append([ns.view_as_real(p.detach()) for p in params])
    if isinstance(results[1], str):
        assert results[0] == results[1]
    else:
        assert_parameters_equal(results[0], results[1], 1e-9)


@every_optimizer
def test_parameters_that_are_not_contiguous(name: str, torch: ModuleType) -> None:
    results = []
    for ns in (evergrad, torch):
        params = [ns.nn.Parameter(p.detach().transpose(0, 1)) for p in parameters(ns)]
        train(ns, make(ns, name, params), params, Gradients(ns), 5)
        assert not params[0].is_contiguous()
        results.append(params)
    assert_parameters_equal(*results, 1e-9)


@every_optimizer
def test_parameters_without_gradient_stay(name: str) -> None:
    params = parameters(evergrad)
    optimizer = make(evergrad, name, params)
    params[0].grad = evergrad.ones_like(params[0].detach())
    before = params[1].detach().clone()
    optimizer.step()
    np.testing.assert_array_equal(params[1].detach().numpy(), before.numpy())


@every_optimizer
def test_a_rate_that_is_a_tensor(name: str, torch: ModuleType) -> None:
    results = []
    for ns in (evergrad, torch):
        params = parameters(ns)
        optimizer = make(ns, name, params, lr=ns.tensor(0.05), foreach=False)
        train(ns, optimizer, params, Gradients(ns), 5)
        results.append(params)
    assert_parameters_equal(*results, 1e-7)


def test_single_elements_and_none(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        params = parameters(ns, shapes=((), (1,), (0, 3)))
        train(ns, ns.optim.Adam(params), params, Gradients(ns), 3)
        return list(params)

    agree(program, torch)


# -- groups -------------------------------------------------------------------------------------


@every_optimizer
def test_groups_have_options_of_their_own(name: str, torch: ModuleType) -> None:
    results = []
    for ns in (evergrad, torch):
        params = parameters(ns)
        optimizer = make(ns, name, [{"params": params[0]}, {"params": params[1:2], "lr": 0.5}])
        train(ns, optimizer, params[:2], Gradients(ns), 3)
        optimizer.add_param_group({"params": params[2:], "lr": 0.2})
        gradients = Gradients(ns)
        train(ns, optimizer, params, gradients, 3)
        optimizer.param_groups[0]["lr"] = 0.3
        train(ns, optimizer, params, gradients, 3)
        results.append((params, plain_state(optimizer.state_dict())))
    assert_parameters_equal(results[0][0], results[1][0], 1e-9)
    assert_states_equal(results[0][1], results[1][1], 1e-9)


def test_named_parameters(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Linear(2, 1)
        optimizer = ns.optim.SGD(m.named_parameters(), lr=0.1)
        return optimizer.param_groups[0]["param_names"], plain_state(optimizer.state_dict())

    agree(program, torch)


@pytest.mark.parametrize(
    "act",
    [
        lambda ns, p: ns.optim.SGD([]),
        lambda ns, p: ns.optim.SGD(p[0], lr=0.1),
        lambda ns, p: ns.optim.SGD([3], lr=0.1),
        lambda ns, p: ns.optim.SGD([p[0] * 2], lr=0.1),
        lambda ns, p: ns.optim.SGD([{"params": p}, {"params": p[0]}], lr=0.1),
        lambda ns, p: ns.optim.SGD([{"params": set(p)}], lr=0.1),
        lambda ns, p: ns.optim.SGD(p, lr=-1),
        lambda ns, p: ns.optim.SGD(p, lr=0.1, momentum=-1),
        lambda ns, p: ns.optim.SGD(p, lr=0.1, weight_decay=-1),
        lambda ns, p: ns.optim.SGD(p, lr=0.1, nesterov=True),
        lambda ns, p: ns.optim.Adam(p, lr=-1),
        lambda ns, p: ns.optim.Adam(p, eps=-1),
        lambda ns, p: ns.optim.Adam(p, betas=(1.0, 0.9)),
        lambda ns, p: ns.optim.Adam(p, betas=(0.9, -0.1)),
        lambda ns, p: ns.optim.SGD(p, lr=0.1).add_param_group(3),
        lambda ns, p: ns.optim.SGD(p, lr=0.1).load_state_dict({"state": {}, "param_groups": []}),
        lambda ns, p: ns.optim.SGD(p, lr=0.1).load_state_dict(
            ns.optim.SGD(p[:1], lr=0.1).state_dict()
        ),
        lambda ns, p: ns.optim.Optimizer(p, {}).step(),
    ],
)
def test_mistakes_are_refused(act: Any, torch: ModuleType) -> None:
    refuse(lambda ns: act(ns, parameters(ns)), torch)


def test_zero_grad(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        params = parameters(ns)[:2]
        optimizer = ns.optim.SGD(params, lr=0.1)
        params[0].grad = ns.ones_like(params[0].detach())
        optimizer.zero_grad(set_to_none=False)
        first = params[0].grad.clone()
        optimizer.zero_grad()
        return first, params[0].grad, params[1].grad

    agree(program, torch)


@every_optimizer
def test_text_and_defaults(name: str, torch: ModuleType) -> None:
    def text(ns: Any) -> str:
        return repr(make(ns, name, [{"params": p} for p in parameters(ns)]))

    assert text(evergrad) == text(torch)


# -- state --------------------------------------------------------------------------------------


@every_case
def test_state_passes_between_libraries(
    name: str, options: dict[str, Any], torch: ModuleType
) -> None:
    """Train here, go on there, come back: as if it had been one run."""
    whole = parameters(torch)
    optimizer = getattr(torch.optim, name)(whole, **options)
    train(torch, optimizer, whole, Gradients(torch), 9)

    state, values = None, None
    noise = Gradients(evergrad)
    for ns in (evergrad, torch, evergrad):
        params = parameters(ns)
        optimizer = getattr(ns.optim, name)(params, **options)
        if state is not None:
            for p, value in zip(params, values, strict=True):
                p.data.copy_(ns.tensor(value))
            optimizer.load_state_dict(as_state_of(ns, state))
        noise.ns = ns
        train(ns, optimizer, params, noise, 3)
        state = plain_state(optimizer.state_dict())
        values = [p.detach().numpy().copy() for p in params]
    # Loading widens ASGD's rates, which PyTorch keeps in float32 as long as a run lasts.
    assert_parameters_equal(params, whole, 1e-6 if name == "ASGD" else 1e-9)


@every_optimizer
def test_loading_copies_and_converts(name: str) -> None:
    wide = parameters(evergrad, "float64")
    first = make(evergrad, name, wide)
    train(evergrad, first, wide, Gradients(evergrad), 2)
    narrow = parameters(evergrad, "float32")
    second = make(evergrad, name, narrow)
    second.load_state_dict(first.state_dict())
    held = {id(v) for s in first.state.values() for v in s.values()}
    for p in narrow:
        for key, value in second.state[p].items():
            assert id(value) not in held or not hasattr(value, "dtype")
            if key != "step" and hasattr(value, "dtype") and value.shape == p.shape:
                assert value.dtype is evergrad.float32
    train(evergrad, second, narrow, Gradients(evergrad), 1)


@every_optimizer
def test_copies_go_on_alike(name: str) -> None:
    params = parameters(evergrad)
    optimizer = make(evergrad, name, params)
    train(evergrad, optimizer, params, Gradients(evergrad), 2)
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        own = copied.param_groups[0]["params"]
        train(evergrad, copied, own, Gradients(evergrad), 2)
        again = parameters(evergrad)
        whole = make(evergrad, name, again)
        train(evergrad, whole, again, Gradients(evergrad), 2)
        train(evergrad, whole, again, Gradients(evergrad), 2)
        assert_parameters_equal(own, again, 1e-12)


# -- closures and hooks -------------------------------------------------------------------------


@every_optimizer
def test_closures(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        params = parameters(ns)
        optimizer = make(ns, name, params)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = sum((p**2).sum() for p in params)
            loss.backward()
            return loss

        with ns.no_grad():
            losses = [optimizer.step(closure) for _ in range(3)]
        return [loss.detach() for loss in losses], [p.detach() for p in params]

    agree(program, torch)


def test_step_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        params, seen = parameters(ns), []
        optimizer = ns.optim.SGD(params, lr=0.1)
        handle = optimizer.register_step_pre_hook(lambda o, args, kw: seen.append("before"))
        optimizer.register_step_post_hook(lambda o, args, kw: seen.append("after"))
        optimizer.register_step_pre_hook(lambda o, args, kw: ((o, lambda: seen.append("loss")), {}))
        optimizer.step()
        handle.remove()
        optimizer.step()
        return seen

    agree(program, torch)


def test_state_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        params, seen = parameters(ns), []
        optimizer = ns.optim.SGD(params, lr=0.1)
        optimizer.register_state_dict_pre_hook(lambda o: seen.append("save"))
        optimizer.register_state_dict_post_hook(lambda o, s: seen.append(sorted(s)))
        optimizer.register_state_dict_post_hook(lambda o, s: {**s, "more": 1})
        optimizer.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
        optimizer.register_load_state_dict_pre_hook(lambda o, s: seen.append("load"))
        optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
        optimizer.register_load_state_dict_post_hook(lambda o: seen.append("0"), prepend=True)
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        return seen, sorted(state)

    agree(program, torch)


# -- memory -------------------------------------------------------------------------------------

LARGE = ((70, 300), (17,), (40, 3, 3))


ELEMENTWISE = [case for case in CASES if case[0] not in NOT_ELEMENTWISE]


@pytest.mark.parametrize(("name", "options"), ELEMENTWISE, ids=[ids(c) for c in ELEMENTWISE])
def test_steps_allocate_nothing(name: str, options: dict[str, Any]) -> None:
    params = parameters(evergrad, "float32", LARGE)
    optimizer = getattr(evergrad.optim, name)(params, **options)
    Gradients(evergrad).set_on(params)
    optimizer.step()
    count, live = LEDGER.count, LEDGER.live
    LEDGER.peak = LEDGER.live
    for _ in range(3):
        optimizer.step()
    assert (LEDGER.count, LEDGER.live) == (count, live)
    assert LEDGER.peak - live <= 8  # a number on its way into a tensor without dimensions


@every_optimizer
def test_state_is_counted_as_the_optimizers(name: str) -> None:
    before = LEDGER.categories()["optimizer"]
    params = parameters(evergrad, "float32", LARGE)
    optimizer = make(evergrad, name, params)
    Gradients(evergrad).set_on(params)
    optimizer.step()
    held = sum(
        v.nbytes for s in optimizer.state.values() for v in s.values() if hasattr(v, "nbytes")
    )
    assert LEDGER.categories()["optimizer"] - before == held
    assert held > 0
