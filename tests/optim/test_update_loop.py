"""The native loop of small optimizer updates beside the same formula run by NumPy."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.eager.fused_update import FusedUpdate
from evergrad.core.eager.fusion import eager_kernels
from evergrad.core.eager.update_loop import LOOP_BELOW

OPTIMIZERS = {
    "SGD": {"weight_decay": 0.1},
    "SGD momentum": {"momentum": 0.9, "nesterov": True, "maximize": True},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adagrad": {},
    "Adadelta": {},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "Rprop": {},
    "ASGD": {},
}


def _steps(name: str, options: dict, count: int, kind: str) -> np.ndarray:
    random = np.random.default_rng(count)
    p = eg.tensor(random.standard_normal(count).astype(kind)).requires_grad_()
    optimizer = getattr(eg.optim, name.split()[0])([p], lr=0.05, **options)
    for k in range(7):
        p.grad = eg.tensor(random.standard_normal(count).astype(kind))
        optimizer.param_groups[0]["lr"] = 0.05 / (k + 1)
        version = p._version
        optimizer.step()
        assert p._version > version
    return p.detach().numpy()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_as_by_numpy(name, kind):
    for count in (1, 3, 64, 1003, LOOP_BELOW + 1):
        found = _steps(name, OPTIMIZERS[name], count, kind)
        with eager_kernels(enabled=False):
            wanted = _steps(name, OPTIMIZERS[name], count, kind)
        tolerance = 2e-6 if kind == "float32" else 1e-13
        np.testing.assert_allclose(found, wanted, rtol=50 * tolerance, atol=tolerance)


def _plain(p, g, lr):
    return p - g * lr


def _both(p, m, g, lr):
    return p - m * lr, m + g


def test_elements_do_not_depend_on_the_length():
    x, g = np.random.default_rng(0).standard_normal((2, 500)).astype("float32")
    whole = eg.tensor(x)
    FusedUpdate(_plain, 1)((whole, eg.tensor(g)), 0.3)
    for count in (1, 2, 17, 130):
        part = eg.tensor(x[:count])
        FusedUpdate(_plain, 1)((part, eg.tensor(g[:count])), 0.3)
        assert part.equal(whole[:count])


def test_same_memory_twice_and_new_values_of_two():
    x = np.arange(100, dtype="float32")
    p = eg.tensor(x)
    FusedUpdate(_plain, 1)((p, p.detach()), 0.5)
    np.testing.assert_array_equal(p.numpy(), x - x * np.float32(0.5))
    p, m, g = eg.tensor(x), eg.tensor(x), eg.ones(100)
    FusedUpdate(_both, 2)((p, m, g), 0.5)  # the new p is of the old m
    np.testing.assert_array_equal(p.numpy(), x - x * np.float32(0.5))
    np.testing.assert_array_equal(m.numpy(), x + 1)


def test_strided_parameters_and_gradients_and_empty_ones():
    base = eg.zeros(6, 4)
    p = base.t()  # not contiguous
    FusedUpdate(_plain, 1)((p, eg.ones(4, 6)), 1.0)
    assert base.eq(-1).all()
    p = eg.zeros(4, 6)
    FusedUpdate(_plain, 1)((p, eg.ones(6, 4).t()), 1.0)
    assert p.eq(-1).all()
    FusedUpdate(_plain, 1)((eg.zeros(0, 3), eg.ones(0, 3)), 1.0)


def test_threads_have_numbers_of_their_own():
    update = FusedUpdate(_plain, 1)
    results = {}

    def work(number: int) -> None:
        p = eg.zeros(64)
        for _ in range(200):
            update((p, eg.ones(64)), float(number))
        results[number] = p

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[k].eq(-200.0 * k).all() for k in range(4))
