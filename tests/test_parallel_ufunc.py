"""Large NumPy calls in parallel: the same bits for any number of threads."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.core.eager import parallel_ufunc


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = eg.get_num_threads()
    monkeypatch.setattr(parallel_ufunc, "_CHUNK", 64)
    monkeypatch.setattr(parallel_ufunc, "PARALLEL_MIN_ELEMENTS", 256)
    yield
    eg.set_num_threads(threads)


def _numbers(size: int, kind: str = "f4") -> Any:
    return np.random.default_rng(size).standard_normal(size).astype(kind)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [255, 256, 257, 1000, 4096])
@pytest.mark.parametrize("kind", ["f4", "f8", "i8"])
def test_every_element_is_computed_once(threads: int, size: int, kind: str) -> None:
    eg.set_num_threads(threads)
    a, b = _numbers(size, kind), _numbers(size, kind)[::-1].copy()
    out = np.empty_like(a)
    assert parallel_ufunc.parallel_ufunc(np.subtract)(a, b, out=out) is out
    np.testing.assert_array_equal(out, a - b)
    total = a.copy()
    parallel_ufunc.add_arrays(total, b, out=total)  # a second time would show
    np.testing.assert_array_equal(total, a + b)


@pytest.mark.parametrize("shape", [(32, 40), (5, 16, 16)])
def test_numbers_and_arrays_of_other_strides(shape: tuple[int, ...]) -> None:
    eg.set_num_threads(2)
    a = _numbers(int(np.prod(shape))).reshape(shape)
    multiply = parallel_ufunc.parallel_ufunc(np.multiply)
    swapped = _numbers(a.size).reshape(shape[::-1]).T
    for other in (
        np.float32(3),
        np.array(2.5, "f4"),
        a[:1],
        swapped,
        np.broadcast_to(a[:1], shape),
    ):
        np.testing.assert_array_equal(multiply(a, other, out=np.empty_like(a)), a * other)
    strided = np.empty((*shape, 2), "f4")[..., 0]
    np.testing.assert_array_equal(multiply(a, a, out=strided), a * a)


def test_workers_do_not_warn_of_infinities() -> None:
    eg.set_num_threads(2)
    x = eg.zeros(1 << 20)
    for _ in range(3):
        assert bool(((1 / x) == float("inf")).all())


def test_a_failure_of_a_worker_is_the_callers() -> None:
    def fails(*arrays: Any, out: Any) -> None:
        raise FloatingPointError("no")

    job = parallel_ufunc._Job(fails, iter([(np.ones(2), np.ones(2))]), 1)
    job.run_in_worker()
    with pytest.raises(FloatingPointError):
        job.finish(1)


def test_workers_that_come_too_late_find_nothing_to_do() -> None:
    array = _numbers(4)
    alive = weakref.ref(array)
    job = parallel_ufunc._Job(np.negative, iter([(array, array)]), 2)
    job.work()
    job.finish(2)
    job.run_in_worker()
    del array
    assert alive() is None


def test_gradients_are_the_same_for_any_number_of_threads() -> None:
    source = np.random.default_rng(0)
    a, b = (source.standard_normal((1 << 20) + 3).astype("f4") for _ in range(2))

    def gradients(threads: int) -> list[Any]:
        eg.set_num_threads(threads)
        x, y = eg.tensor(a).requires_grad_(), eg.tensor(b).requires_grad_()
        ((x * y + x).exp() * y - x).sum().backward()
        return [x.grad.numpy(), y.grad.numpy()]

    one, two, three = map(gradients, (1, 2, 3))
    for first, second, third in zip(one, two, three, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, third)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_workers_of_its_own() -> None:
    eg.set_num_threads(2)
    a = _numbers(1000)
    add = parallel_ufunc.parallel_ufunc(np.add)
    add(a, a, out=np.empty_like(a))
    child = os.fork()
    if not child:
        right = False
        try:
            equal = bool((add(a, a, out=np.empty_like(a)) == a + a).all())
            right = equal and parallel_ufunc._workers == 1
        finally:
            os._exit(not right)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
