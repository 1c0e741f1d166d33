"""Memory accounts: the ledger is exact in every situation, and what is said about it is true."""

from __future__ import annotations

import copy
import gc
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import memory
from evergrad.autograd import Function
from evergrad.core import op as op_module
from evergrad.core import vjp_program
from evergrad.memory import pool
from evergrad.memory.ledger import CATEGORIES, GRADIENT, LEDGER, OPTIMIZER, PARAMETER
from evergrad.testing.samples.table import all_samples
from evergrad.testing.subject import Subject, as_tensors, random_like
from storages import all_storages

pytestmark = pytest.mark.usefixtures("collector_off")


def live() -> tuple[int, int]:
    return LEDGER.live, LEDGER.count


def assert_balanced() -> None:
    """The ledger is the sum over all storages there are, in all and by category."""
    storages = all_storages()
    assert sum(s.nbytes for s in storages) == LEDGER.live
    assert len(storages) == LEDGER.count
    found = dict.fromkeys(CATEGORIES, 0)
    for storage in storages:
        found[CATEGORIES[storage.category]] += storage.nbytes
    assert found == LEDGER.categories()


# -- the ledger is exact --------------------------------------------------------------------------


class Scale(Function):
    """Keeps its result, as custom functions may."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * y


def leaf(*shape: int) -> Any:
    return eg.randn(*shape).requires_grad_()


def ops() -> Iterator[Any]:
    a, b = leaf(5, 4), eg.ones(4)
    yield a + b
    yield (a @ a.t()).exp().sum(0)
    yield eg.cat([a, a]).sort(0)


def views() -> Iterator[Any]:
    a = leaf(6, 4) * 2
    yield a.view(24), a.t(), a[2:4, ::2], a.expand(3, 6, 4)
    b = a[1:]
    del a
    yield b
    yield b.reshape(-1)[3:].detach()
    yield b.t().reshape(-1)  # this one has to copy


def writes() -> Iterator[Any]:
    a = leaf(6, 4) * 1
    a[1:3] = 7.0
    a.view(24)[::3].mul_(2)
    yield a
    a.copy_(eg.ones(4))
    a += leaf(4)
    yield a
    a.sum().backward()
    yield a


def backward() -> Iterator[Any]:
    w = leaf(6, 4)
    y = (w * w).tanh().sum()
    yield y
    y.backward(retain_graph=True)
    yield w.grad
    y.backward()
    yield w.grad
    w.grad = None
    yield y


def second_order() -> Iterator[Any]:
    w = leaf(6)
    (w.sin() ** 2).sum().backward(create_graph=True)
    yield w
    w.grad.sum().backward()
    yield w
    w.grad = None
    (g,) = eg.autograd.grad((w**3).sum(), w, create_graph=True)
    yield g


def hooks() -> Iterator[Any]:
    w = leaf(5)
    kept: list[Any] = []
    y = w * 2
    y.retain_grad()
    y.register_hook(kept.append)
    w.register_post_accumulate_grad_hook(lambda t: kept.append(t.grad.clone()))
    y.sum().backward()
    yield kept
    kept.clear()
    yield y.grad


def custom() -> Iterator[Any]:
    w = leaf(5)
    yield Scale.apply(w)
    Scale.apply(w).sum().backward()
    yield w.grad
    w.grad = None
    Scale.apply(w).sum().backward(create_graph=True)
    yield w.grad


def transforms() -> Iterator[Any]:
    a = eg.randn(4)
    yield eg.func.hessian(lambda x: (x**3).sum())(a)
    yield eg.func.vmap(lambda x: x.sin() * a)(eg.randn(3, 4))
    yield eg.func.jvp(lambda x: x.exp(), (a,), (a,))


def errors() -> Iterator[Any]:
    w = leaf(4, 3)
    for wrong in (lambda: w @ w, lambda: w.view(5), lambda: w[9], lambda: w.add_(1)):
        with pytest.raises((RuntimeError, IndexError)):
            wrong()
        yield None
    y = (w * w).sum()
    y.backward()
    with pytest.raises(RuntimeError):
        y.backward()
    yield None

    def fail(grad: Any) -> None:
        raise ValueError("no")

    z = w.exp()
    z.register_hook(fail)
    with pytest.raises(ValueError, match="no"):
        (z * z).sum().backward()
    yield None


def exchange() -> Iterator[Any]:
    a = eg.arange(12.0)
    array = a.numpy()
    del a
    yield array
    b = eg.from_numpy(array)
    yield b
    yield copy.deepcopy(b), pickle.loads(pickle.dumps(b)), b.tolist()
    yield eg.from_dlpack(b)


def sizes() -> Iterator[Any]:
    a = eg.ones(4)
    yield a.resize_(50)
    yield a.resize_(3)
    a.data = eg.ones(7)
    yield a
    yield eg.empty(0), eg.ones(()), eg.ones(3, 0)


def categories() -> Iterator[Any]:
    a = leaf(10)
    a._storage.tag(PARAMETER)
    yield a
    b = a * a
    yield b
    a._storage.tag(OPTIMIZER)
    yield b
    a._storage.tag(0)
    yield b


SITUATIONS: list[Callable[[], Iterator[Any]]] = [
    ops, views, writes, backward, second_order, hooks, custom, transforms, errors, exchange, sizes,
    categories,
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_ledger_is_the_sum_of_all_storages(situation: Callable[[], Iterator[Any]]) -> None:
    before = live()
    assert_balanced()
    for held in situation():
        assert_balanced()
        del held
        assert_balanced()
    assert live() == before


@pytest.mark.parametrize("situation", SITUATIONS)
def test_also_while_poisoned_and_tracked(situation: Callable[[], Iterator[Any]]) -> None:
    gc.collect()  # what exceptions of earlier tests hold
    before = live()
    with memory.poison(), memory.track() as tracker:
        for held in situation():
            assert_balanced()
            del held
    assert live() == before
    assert not tracker.alive
    assert sum(event.nbytes for event in tracker.timeline if event.kind != "scratch") == 0


def test_inside_backward_the_ledger_also_counts_what_waits() -> None:
    x = leaf(64, 64)
    seen: list[int] = []

    def look(grad: Any) -> None:
        storages = all_storages()
        seen.append(LEDGER.live - sum(s.nbytes for s in storages))

    y = x * 2
    z = y.sin()
    z.register_hook(look)
    (y * z).sum().backward()  # a cotangent of y waits while the hook runs
    assert seen == [x.nbytes]
    assert_balanced()


# -- bytes by formula -----------------------------------------------------------------------------


VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(4, 15),
    "reshape": lambda x: x.reshape(2, 30),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(2, (5, 1)),
    "t": lambda x: x[0].t(),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "movedim": lambda x: x.movedim(0, 2),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[1:, ::2, -3:],
    "index": lambda x: x[1, ..., None, 2],
    "expand": lambda x: x[:, None].expand(-1, 7, -1, -1),
    "broadcast": lambda x: x.broadcast_to(9, 3, 4, 5),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "as_strided": lambda x: x.as_strided((3, 3), (1, 2)),
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(2, 1),
    "chunk": lambda x: x.chunk(2, 2),
    "unbind": lambda x: x.unbind(1),
    "T": lambda x: x[0].T,
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(eg.float32),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_allocate_nothing(name: str, requires_grad: bool) -> None:
    x = eg.ones(3, 4, 5)
    if requires_grad:
        x.requires_grad_()
    before = live()
    memory.reset_peak()
    view = VIEWS[name](x)
    assert live() == before
    assert memory.stats()["peak"] == before[0]
    del view


def forward(x: Any, weights: list[Any], layer: Callable[[Any], Any]) -> Any:
    for w in weights:
        x = layer(x @ w).tanh()
    return x.sum()


@pytest.mark.parametrize("layer", [lambda z: z, lambda z: z.t().view(64, 2, 64).flatten(1).t()])
@pytest.mark.parametrize("depth", [2, 3, 5, 8])
def test_bytes_of_an_mlp(depth: int, layer: Callable[[Any], Any]) -> None:
    """With A bytes in an activation and G in a weight (A > G), and d layers:

    after forward     d A            tanh keeps its result, which is the next product's argument
    peak of forward   (d + 1) A      and the last product, before tanh has run
    peak of backward  (d + 1) A + G  a cotangent and its successor; the first weight gradient
    after backward    d G            one gradient for each weight, nothing of the activations

    Views in between add nothing.
    """
    x = eg.randn(128, 64)
    weights = [leaf(64, 64) for _ in range(depth)]
    A, G, scalar = x.nbytes, weights[0].nbytes, 4
    forward(x, weights, layer).backward()
    for w in weights:
        w.grad = None
    before = LEDGER.live

    memory.reset_peak()
    loss = forward(x, weights, layer)
    assert LEDGER.live - before == depth * A + scalar
    assert LEDGER.peak - before == (depth + 1) * A
    memory.reset_peak()
    loss.backward()
    assert LEDGER.peak - before == (depth + 1) * A + G + 2 * scalar
    assert LEDGER.live - before == depth * G + scalar
    del loss
    assert LEDGER.live - before == depth * G


def _gradients() -> tuple[int, int]:
    """Bytes and number of all gradients there are."""
    storages = all_storages()
    found = [s.nbytes for s in storages if s.category == GRADIENT]
    assert sum(found) == memory.stats()["by_category"]["gradient"]
    return sum(found), len(found)


def test_gradients_are_one_buffer_per_parameter_made_late() -> None:
    weights = [leaf(30, 20), leaf(20, 40), leaf(40)]
    unused = leaf(1000)
    parameters = sum(w.nbytes for w in weights)
    gradients = _gradients()
    x = eg.randn(7, 30)

    def loss() -> Any:
        return ((x @ weights[0]).relu() @ weights[1] + weights[2]).sum()

    loss().backward()
    assert _gradients() == (gradients[0] + parameters, gradients[1] + len(weights))
    assert unused.grad is None
    places = [w.grad.data_ptr() for w in weights]
    before = live()
    for _ in range(3):
        loss().backward()
    assert live() == before
    assert [w.grad.data_ptr() for w in weights] == places


def test_a_gradient_of_a_large_parameter_is_adopted_not_copied() -> None:
    w = leaf(1000, 500)
    x = eg.randn(3, 1000)
    loss = (x @ w).sum()
    before = LEDGER.live
    memory.reset_peak()
    loss.backward()
    assert LEDGER.peak - before < 1.1 * w.nbytes


def test_saved_values_are_released_as_backward_goes() -> None:
    x = leaf(100, 100)
    lives: list[int] = []
    y = x * 1.0
    for _ in range(5):
        y = y.exp().log1p()
        y.register_hook(lambda grad: lives.append(LEDGER.live))
    y.sum().backward()
    steps = np.diff(lives)
    assert (steps <= -x.nbytes).all()


def test_a_kept_value_does_not_outlive_its_node() -> None:
    """Not even by the names that the walk back uses."""
    x = leaf(200, 200)
    saved: list[int] = []
    y = x * 1.0
    y.register_hook(lambda grad: saved.append(memory.stats()["by_category"]["saved"]))
    total = ((y + 1.0) + 1.0).exp().sum()  # exp keeps its result, the others nothing
    before = memory.stats()["by_category"]["saved"]
    total.backward()
    assert saved == [before - x.nbytes]


def test_scratch_of_a_derivative_is_overwritten_not_piled_up() -> None:
    """tanh' = g (1 - y y) is three ops; each takes over the memory of the one before."""
    x = leaf(300, 300)
    y = x.tanh().sum()
    before = LEDGER.live
    memory.reset_peak()
    y.backward()
    assert LEDGER.peak - before == x.nbytes + 4
    expected = 1 - np.tanh(x.detach().numpy()) ** 2
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-6)


def test_overwriting_scratch_changes_no_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    """For every sample: on arrays, where scratch is overwritten, as on tensors, where it is not."""
    monkeypatch.setattr(vjp_program, "LEDGER_MIN_BYTES", 1)  # else only large results are
    op_module.clear_specializations()
    compared = 0
    for sample in (s for listed in all_samples().values() for s in listed):
        subject = Subject(sample)
        points = [point.requires_grad_() for point in subject.points()]
        outs = [out for out in subject.function(*points) if out.requires_grad]
        if not outs:
            continue
        cotangents = as_tensors(random_like([out.detach().numpy() for out in outs], seed=1))
        found = [
            eg.autograd.grad(
                outs, points, cotangents, retain_graph=True, create_graph=recorded,
                allow_unused=True,
            )
            for recorded in (False, True, False)
        ]  # fmt: skip
        for first, recorded, second in zip(*found, strict=True):
            if first is not None:
                compared += 1
                np.testing.assert_array_equal(first.numpy(), recorded.detach().numpy())
                np.testing.assert_array_equal(first.numpy(), second.numpy())
    op_module.clear_specializations()
    assert compared > 200


# -- whose memory a result is ---------------------------------------------------------------------


def test_rows_that_are_no_views_give_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In-place accumulation in backward stands on this."""
    real = op_module.evaluator
    shared: set[str] = set()
    called: set[str] = set()

    def checking(op: Any, *rest: Any) -> Callable[..., Any]:
        run = real(op, *rest)

        def checked(*arrays: Any) -> Any:
            result = run(*arrays)
            called.add(op.name)
            for out in result if isinstance(result, tuple) else (result,):
                given = [a for a in arrays if isinstance(a, np.ndarray)]
                repeats = any(s == 0 and n > 1 for s, n in zip(out.strides, out.shape, strict=True))
                if out.size and (repeats or not out.flags.writeable):
                    shared.add(f"{op.name}: its result cannot be written")
                if any(np.may_share_memory(out, a) for a in given if a.size):
                    shared.add(f"{op.name}: its result is an argument's memory")
            return result

        return run if op.alias else checked

    op_module.clear_specializations()
    monkeypatch.setattr(op_module, "evaluator", checking)
    for sample in (s for listed in all_samples().values() for s in listed):
        subject = Subject(sample)
        points = [point.requires_grad_() for point in subject.points()]
        outs = [out for out in subject.function(*points) if out.requires_grad]
        if outs:
            eg.autograd.backward([out.abs().sum() for out in outs])
    op_module.clear_specializations()
    assert len(called) > 50
    assert not shared


# -- failing allocations --------------------------------------------------------------------------


def test_an_impossible_result_is_a_memory_error_that_helps() -> None:
    a = eg.ones(1 << 26)
    before = live()
    with pytest.raises(MemoryError) as raised:
        a[:, None] * a[None, :]
    text = str(raised.value)
    assert text.startswith(f"mul could not allocate {(1 << 52) * 4:,} bytes")
    assert re.search(r"\nlive \S+ [MG]iB in \d+ buffers", text)
    assert re.search(r"\nalive now\n\s+256.00 MiB  other +float32\[67108864\]", text)
    assert live() == before
    assert_balanced()


def test_the_error_names_who_allocated_while_tracking() -> None:
    a = eg.ones(1 << 26)
    with memory.track(), pytest.raises(MemoryError, match=r"b = a\[:10000\] \* 3"):
        b = a[:10000] * 3
        a[:, None] * a[None, :]
    del b


def test_memory_that_runs_out_in_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    w = leaf(300, 300)
    loss = (w @ w).tanh().sum()
    memory.trim()
    before, version = live(), w._version

    real = pool._map

    def refuse(size: int, nbytes: int) -> Any:
        if size < w.nbytes:
            return real(size, nbytes)
        raise MemoryError(f"no {size:,} bytes")

    with monkeypatch.context() as patch, pytest.raises(MemoryError) as raised:
        patch.setattr(pool, "_map", refuse)
        loss.backward()
    text = str(raised.value)
    assert text.startswith("TanhBackward0 could not allocate memory: no 360,448 bytes\nlive ")
    assert "2 x float32[300,300]" in text
    del raised  # its traceback holds the cotangent that backward began with
    assert live() == before and w.grad is None and w._version == version
    assert_balanced()
    loss.backward()
    assert w.grad is not None


def test_limit() -> None:
    a = eg.ones(1000)
    before, peak = live(), LEDGER.peak
    with memory.limit(LEDGER.live + 5000):
        b = a + 1
        refused = r"mul could not allocate 4,000 bytes .* memory\.limit"
        with pytest.raises(MemoryError, match=refused):
            b * 2
        del b
        b = a * 2
    del b
    assert live() == before and LEDGER.observer is None
    assert LEDGER.peak == max(peak, before[0] + 4000)
    memory.limit(LEDGER.live)
    with pytest.raises(MemoryError):
        a + 1
    with memory.limit(None):
        assert (a + 1).sum() == 2000
    with pytest.raises(MemoryError):
        a + 1
    memory.limit(None)
    assert (a + 1).sum() == 2000
    with pytest.raises(ValueError, match="negative"):
        memory.limit(-1)


def test_a_refused_allocation_is_not_in_the_timeline() -> None:
    a = eg.ones(1000)
    with memory.track() as tracker, memory.limit(LEDGER.live + 10), pytest.raises(MemoryError):
        a + 1
    gc.collect()
    assert sum(event.nbytes for event in tracker.timeline) == 0
    assert tracker.peak == tracker.live_at_start


def test_a_step_that_fails_anywhere_leaves_no_trace() -> None:
    """With a limit that lets ever more of a step through, until all of it is."""
    eg.manual_seed(3)
    x = eg.randn(40, 30)
    weights = [leaf(30, 50), leaf(50, 50), leaf(50, 20)]

    def step() -> Any:
        h = x
        for w in weights:
            h = (h @ w).tanh()
        loss = (h * h).mean() + eg.cat([h, h]).softmax(1)[:, 1].sum()
        loss.backward()
        return loss.item()

    expected = step()
    gradients = [w.grad.clone() for w in weights]
    values = [w.detach().clone() for w in weights]
    versions = [w._version for w in weights]
    for w in weights:
        w.grad = None
    before = live()
    failures = 0
    for room in range(0, 400_000, 3_000):
        try:
            with memory.limit(before[0] + room):
                assert step() == expected
            break
        except MemoryError:
            failures += 1
        for w in weights:
            w.grad = None
        assert live() == before
        assert_balanced()
        assert [w._version for w in weights] == versions
        for w, value in zip(weights, values, strict=True):
            assert eg.equal(w, value)
    assert failures > 10
    for w, gradient in zip(weights, gradients, strict=True):
        assert eg.equal(w.grad, gradient)
