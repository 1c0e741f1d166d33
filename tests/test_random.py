"""Random tensors: PyTorch's numbers for PyTorch's seeds, and who draws from which stream."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.core.interpret import interpret
from evergrad.core.traced_function import trace
from oracle import Call, assert_same

CALLS: list[Call] = [
    lambda ns: ns.rand(2, 3),
    lambda ns: ns.rand((2, 3), dtype=ns.float64),
    lambda ns: ns.rand(4, dtype=ns.float16),
    lambda ns: ns.rand(4, dtype=ns.bfloat16),
    lambda ns: ns.rand(4, dtype=ns.complex64),
    lambda ns: ns.rand(size=(2,)),
    lambda ns: ns.rand(0),
    lambda ns: ns.rand(()),
    lambda ns: ns.rand(3, requires_grad=True),
    lambda ns: ns.rand(2, out=ns.zeros(2, dtype=ns.float64)),
    lambda ns: ns.rand(2, dtype=ns.int64),
    lambda ns: ns.rand(-1),
    lambda ns: ns.rand(2, generator=3),
    lambda ns: ns.rand_like(ns.zeros(3, dtype=ns.int64)),
    lambda ns: ns.rand_like(ns.zeros(3, dtype=ns.int64), dtype=ns.float32),
    lambda ns: ns.randn(5),
    lambda ns: ns.randn(4, 5),
    lambda ns: ns.randn(33, dtype=ns.float64),
    lambda ns: ns.randn(33, dtype=ns.bfloat16),
    lambda ns: ns.randn(3, dtype=ns.complex128),
    lambda ns: ns.randn(2, dtype=ns.int64),
    lambda ns: ns.randn_like(ns.zeros(3), dtype=ns.float64),
    lambda ns: ns.randint(3, (5,)),
    lambda ns: ns.randint(-3, 5, (5,)),
    lambda ns: ns.randint(high=3, size=(5,)),
    lambda ns: ns.randint(low=1, high=3, size=(5,)),
    lambda ns: ns.randint(ns.tensor(3), (2,)),
    lambda ns: ns.randint(0, 3, (5,), dtype=ns.float32),
    lambda ns: ns.randint(0, 2, (4,), dtype=ns.bool),
    lambda ns: ns.randint(-(2**63), 2**63 - 1, (3,)),
    lambda ns: ns.randint(5, 3, (2,)),
    lambda ns: ns.randint(0, 300, (2,), dtype=ns.uint8),
    lambda ns: ns.randint(-5, 3, (2,), dtype=ns.uint8),
    lambda ns: ns.randint(0, 2.5, (3,)),
    lambda ns: ns.randint_like(ns.zeros(3), 5),
    lambda ns: ns.randint_like(ns.zeros(3), 2, 5),
    lambda ns: ns.randperm(10),
    lambda ns: ns.randperm(3, dtype=ns.float32),
    lambda ns: ns.randperm(-1),
    lambda ns: ns.randperm(300, dtype=ns.uint8),
    lambda ns: ns.randperm(70000, dtype=ns.float16),
    lambda ns: ns.normal(2, 3, (5,)),
    lambda ns: ns.normal(0.0, 1.0, size=(2, 10), dtype=ns.float64),
    lambda ns: ns.normal(ns.arange(3.0), ns.tensor([1.0, 2, 3])),
    lambda ns: ns.normal(ns.zeros(2, 1), ns.ones(20)),
    lambda ns: ns.normal(ns.arange(20.0), 2.5),
    lambda ns: ns.normal(ns.arange(3.0)),
    lambda ns: ns.normal(1.5, ns.tensor([1.0, 2, 3])),
    lambda ns: ns.normal(mean=ns.zeros(2), std=ns.ones(2)),
    lambda ns: ns.normal(ns.zeros(2), -ns.ones(2)),
    lambda ns: ns.normal(ns.zeros(2), -1.0),
    lambda ns: ns.normal(0.0, 1.0),
    lambda ns: ns.normal(ns.zeros(2, dtype=ns.int64), 1.0),
    lambda ns: ns.bernoulli(ns.tensor([0.2, 0.9, 0.5])),
    lambda ns: ns.bernoulli(ns.tensor([0.2, 0.9], requires_grad=True)),
    lambda ns: ns.bernoulli(ns.zeros(5), 0.5),
    lambda ns: ns.bernoulli(ns.zeros(5), p=0.5),
    lambda ns: ns.zeros(5).bernoulli(0.5),
    lambda ns: ns.bernoulli(ns.tensor([2.0])),
    lambda ns: ns.bernoulli(ns.tensor([1])),
    lambda ns: ns.multinomial(ns.tensor([0.2, 0.8]), 1),
    lambda ns: ns.multinomial(ns.tensor([[0.2, 0.8], [0.5, 0.5]]), 3, replacement=True),
    lambda ns: ns.multinomial(ns.tensor([1, 2, 3]), 1),
    lambda ns: ns.multinomial(ns.tensor(1.0), 1),
    lambda ns: ns.multinomial(ns.tensor([0.2, 0.8]), 3),
    lambda ns: ns.multinomial(ns.tensor([0.2, -0.8]), 1),
    lambda ns: ns.poisson(ns.tensor([1.0, 5.0, 50.0])),
    lambda ns: ns.poisson(ns.tensor([1])),
    lambda ns: ns.binomial(ns.tensor([5.0, 50.0]), ns.tensor([0.5])),
    lambda ns: ns.zeros(5).uniform_(),
    lambda ns: ns.zeros(5).uniform_(-1, 1),
    lambda ns: ns.zeros(5).uniform_(to=3),
    lambda ns: ns.zeros(2).uniform_(1, 0),
    lambda ns: ns.zeros(2, dtype=ns.int64).uniform_(),
    lambda ns: ns.zeros(3, 2).T.uniform_(),
    lambda ns: ns.zeros(2, 3, 4).permute(2, 0, 1).uniform_(),
    lambda ns: ns.zeros(4, 6)[::2, ::3].uniform_(),
    lambda ns: ns.zeros(3, 2).T.normal_(),
    lambda ns: ns.zeros(20).normal_(1, 2),
    lambda ns: ns.zeros(2).normal_(std=-2),
    lambda ns: ns.zeros(5).log_normal_(),
    lambda ns: ns.zeros(5).exponential_(2.0),
    lambda ns: ns.zeros(2, dtype=ns.int64).exponential_(),
    lambda ns: ns.zeros(5).cauchy_(),
    lambda ns: ns.zeros(2, dtype=ns.int64).cauchy_(),
    lambda ns: ns.zeros(5).geometric_(0.3),
    lambda ns: ns.zeros(5, dtype=ns.int64).geometric_(0.3),
    lambda ns: ns.zeros(2).geometric_(1.5),
    lambda ns: ns.zeros(5).bernoulli_(),
    lambda ns: ns.zeros(5, dtype=ns.bool).bernoulli_(0.3),
    lambda ns: ns.zeros(3, dtype=ns.int64).bernoulli_(ns.tensor([0.1, 0.5, 0.9])),
    lambda ns: ns.zeros(2, 3).bernoulli_(ns.tensor([0.1, 0.5, 0.9], dtype=ns.float64)),
    lambda ns: ns.zeros(5).random_(),
    lambda ns: ns.zeros(5).random_(5),
    lambda ns: ns.zeros(5).random_(2, 5),
    lambda ns: ns.zeros(5, dtype=ns.int64).random_(),
    lambda ns: ns.zeros(5, dtype=ns.uint8).random_(),
    lambda ns: ns.zeros(5, dtype=ns.bool).random_(),
    lambda ns: ns.zeros(2, dtype=ns.int64).random_(-(2**63), None),
    lambda ns: ns.zeros(2, dtype=ns.uint8).random_(300),
    lambda ns: ns.zeros(2).random_(5, 2),
    lambda ns: ns.ones(2, requires_grad=True).normal_(),
    lambda ns: ns.rand(3, generator=ns.Generator().manual_seed(7)),
    lambda ns: ns.zeros(3).normal_(generator=ns.Generator().manual_seed(7)),
    lambda ns: ns.initial_seed(),
    lambda ns: ns.Generator().manual_seed(7).initial_seed(),
    lambda ns: ns.Generator().device.type,
    lambda ns: ns.set_rng_state(3),
]


@pytest.mark.parametrize("call", CALLS)
def test_as_in_torch(torch: ModuleType, call: Call) -> None:
    assert_same(torch, call)


def test_draws_of_different_kinds_follow_each_other_as_in_torch(torch: ModuleType) -> None:
    def call(ns: Any) -> Any:
        return (
            ns.rand(3), ns.randn(5), ns.randint(10, (3,)), ns.randn(20), ns.randperm(7),
            ns.zeros(3).exponential_(), ns.bernoulli(ns.full((4,), 0.5)), ns.rand(2),
        )  # fmt: skip

    assert_same(torch, call)


def test_a_row_of_counts_has_slope_zero() -> None:
    p = evergrad.tensor([0.2, 0.7], requires_grad=True)
    evergrad.bernoulli(p).sum().backward()
    assert p.grad.tolist() == [0, 0]


# -- states -------------------------------------------------------------------------------------


def test_a_state_is_a_byte_tensor_from_which_to_go_on() -> None:
    state = evergrad.get_rng_state()
    assert state.dtype is evergrad.uint8 and state.ndim == 1
    first = evergrad.rand(3)
    evergrad.set_rng_state(state)
    assert evergrad.equal(evergrad.rand(3), first)


def test_generators_have_states_of_their_own() -> None:
    generator = evergrad.Generator()
    generator.manual_seed(5)
    copies = [
        generator.clone_state(),
        copy.deepcopy(generator),
        pickle.loads(pickle.dumps(generator)),
        evergrad.Generator().set_state(generator.get_state()),
    ]
    expected = evergrad.rand(3, generator=generator)
    for other in copies:
        assert isinstance(other, evergrad.Generator)
        assert evergrad.equal(evergrad.rand(3, generator=other), expected)


def test_a_counter_based_generator_can_be_chosen() -> None:
    generator = evergrad.Generator(algorithm="philox")
    generator.manual_seed(1)
    first = evergrad.rand(4, generator=generator)
    generator.offset = 0
    assert evergrad.equal(evergrad.rand(4, generator=generator), first)


def test_fork_rng_leaves_the_stream_where_it_was() -> None:
    evergrad.manual_seed(3)
    with evergrad.random.fork_rng():
        evergrad.manual_seed(4)
        evergrad.rand(5)
    inside = evergrad.rand(3)
    evergrad.manual_seed(3)
    assert evergrad.equal(evergrad.rand(3), inside)
    with evergrad.random.fork_rng(enabled=False):
        evergrad.rand(5)
    assert not evergrad.equal(evergrad.rand(3), inside)


def test_seed_begins_somewhere_new() -> None:
    assert evergrad.seed() != evergrad.seed()
    assert evergrad.manual_seed(5) is evergrad.default_generator
    assert evergrad.random.default_generator is evergrad.default_generator


# -- threads ------------------------------------------------------------------------------------


def in_thread(function: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_each_thread_starts_from_the_seed_with_a_stream_of_its_own() -> None:
    evergrad.manual_seed(11)
    here = evergrad.rand(3)
    evergrad.rand(100)
    assert evergrad.equal(in_thread(lambda: evergrad.rand(3)), here)
    state = evergrad.get_rng_state()
    in_thread(lambda: (evergrad.manual_seed(99), evergrad.rand(10)))
    assert evergrad.equal(evergrad.get_rng_state(), state)
    assert in_thread(evergrad.initial_seed) == 99


# -- programs -----------------------------------------------------------------------------------


def test_a_program_draws_anew_each_time_it_runs() -> None:
    def program(x: Any) -> Any:
        return x + evergrad.rand(3), x + evergrad.rand(3)

    evergrad.manual_seed(0)
    traced = trace(program, [evergrad.ones(3)._type])
    assert sum(eqn.op.name == "uniform" for eqn in traced.graph.equations) == 2
    evergrad.manual_seed(0)
    expected = evergrad.rand(4, 3)
    evergrad.manual_seed(0)
    runs = [interpret(traced.graph, evergrad.zeros(3)) for _ in range(2)]
    found = np.stack([value.numpy() for run in runs for value in run])
    np.testing.assert_array_equal(found, expected.numpy())


@pytest.mark.parametrize("form", ["mean", "std", "both", "broadcast"])
@pytest.mark.parametrize("compiled", [False, True])
def test_draws_around_parameters_have_gradients_of_zero(form: str, compiled: bool) -> None:
    """As in PyTorch, where equations are solved at points drawn around others."""
    draws = {
        "mean": lambda p: evergrad.normal(p, 0.1), "std": lambda p: evergrad.normal(0.0, p),
        "both": lambda p: evergrad.normal(p, p),
        "broadcast": lambda p: evergrad.normal(p, evergrad.ones(2, 3)),
    }  # fmt: skip
    draw = evergrad.compile(draws[form]) if compiled else draws[form]
    p = evergrad.full((3,), 0.5, requires_grad=True)
    points = draw(p)
    assert points.requires_grad and not points.is_leaf
    (slope,) = evergrad.autograd.grad((points**2).sum(), points, retain_graph=True)
    assert evergrad.allclose(slope, 2 * points)
    points.sum().backward()
    assert p.grad is not None and p.grad.tolist() == [0.0, 0.0, 0.0]
    assert not draw(p.detach()).requires_grad


def test_draws_in_place_are_traced() -> None:
    buffer = evergrad.zeros(3)
    traced = trace(lambda x: buffer.uniform_() + x, [buffer._type])
    assert buffer.tolist() == [0, 0, 0] and len(traced.graph.writes) == 1
    evergrad.manual_seed(2)
    interpret(traced.graph, evergrad.zeros(3))
    evergrad.manual_seed(2)
    assert evergrad.equal(buffer, evergrad.rand(3))
