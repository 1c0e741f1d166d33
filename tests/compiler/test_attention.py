"""Attention in compiled programs: found in every usual form, tiled, and right to the last edge."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.compiler.kernels.attention import backward, forward, rows
from evergrad.compiler.kernels.attention.common import ScoreStep
from evergrad.compiler.kernels.registry import LOWERINGS
from evergrad.compiler.passes.pipeline import Target, lift_captures, optimize
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core.bind import bind
from evergrad.core.trace import Graph
from evergrad.core.tracing import tracing

from .steps import Scenario, check, programs_of

TOLERANCE = 2e-5
Form = Callable[..., Any]
sdpa = F.scaled_dot_product_attention


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaves(*arrays: Any) -> list[Any]:
    return [eg.tensor(a, requires_grad=True) for a in arrays]


def with_grads(form: Form) -> Form:
    """The result of a form, and the gradients of a sum of it in which every element counts."""

    def run(q: Any, k: Any, v: Any, *others: Any) -> Any:
        y = form(q, k, v, *others)
        weights = eg.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
        return y.detach(), *eg.autograd.grad((y * weights).sum(), [q, k, v])

    return run


def labels(compiled: Any) -> list[str]:
    (program,) = programs_of(compiled)
    return [instruction.label for instruction in program.instructions]


def assert_right(form: Form, q: Any, k: Any, v: Any, *others: Any, found: bool = True) -> Any:
    """Compiled in float32 as eager in float64; and attention was found, or was not."""
    compiled = eg.compile(with_grads(form))
    results = compiled(*leaves(q, k, v), *map(eg.tensor, others))
    assert labels(compiled).count("attention") == found
    assert labels(compiled).count("attention_backward") == found
    wide = [np.float64(x) if x.dtype == np.float32 else x for x in others]
    exact = with_grads(form)(*leaves(*map(np.float64, (q, k, v))), *map(eg.tensor, wide))
    for result, expected in zip(results, exact, strict=True):
        assert result.dtype is eg.float32
        ours, theirs = result.numpy(), expected.numpy()
        scale = np.nanmax(np.abs(theirs), initial=1.0)
        np.testing.assert_allclose(ours / scale, theirs / scale, rtol=0, atol=TOLERANCE)
    return compiled


# -- forms --------------------------------------------------------------------------------------


def plain(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, k, v)


def causal(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, k, v, is_causal=True)


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return sdpa(q, k, v, attn_mask=mask)


def shared(q: Any, k: Any, v: Any) -> Any:
    return sdpa(q, k, v, is_causal=True, enable_gqa=True)


def shared_masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return sdpa(q, k, v, attn_mask=mask, enable_gqa=True)


def by_hand(q: Any, k: Any, v: Any, mask: Any) -> Any:
    length = q.shape[-2]
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(mask[:, :, :length, :length] == 0, float("-inf"))
    return F.softmax(att, dim=-1) @ v


def by_hand_divided(q: Any, k: Any, v: Any, bias: Any) -> Any:
    att = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias
    return eg.matmul(eg.softmax(att, dim=-1), v)


def by_hand_scaled_first(q: Any, k: Any, v: Any) -> Any:
    return eg.softmax(eg.matmul(q / 3, k.mT), -1) @ v


def by_hand_twice_masked(q: Any, k: Any, v: Any, mask: Any, padding: Any) -> Any:
    att = (2.0 * (q @ k.mT)).masked_fill(padding, -math.inf)
    return eg.softmax(eg.where(mask, att, -math.inf), -1) @ v


SIZES = [  # batch, heads, queries, keys, width, width of values
    (1, 1, 1, 1, 1, 1),
    (2, 3, 5, 7, 4, 6),
    (2, 1, 33, 70, 17, 9),
    (1, 2, 64, 64, 32, 32),
    (1, 1, 65, 129, 40, 24),
    (3, 3, 130, 100, 8, 48),
    (1, 1, 300, 520, 12, 20),
]


@pytest.mark.parametrize("form", [plain, causal, by_hand_scaled_first])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(form: Form, size: tuple[int, ...]) -> None:
    b, h, t, s, d, e = size
    assert_right(form, normal(b, h, t, d), normal(b, h, s, d, seed=1), normal(b, h, s, e, seed=2))


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 3), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(shape: tuple[int, ...], kind: str) -> None:
    values = normal(*shape, 70, 90, seed=4)
    mask = values > -0.5 if kind == "bool" else values
    assert_right(masked, normal(2, 3, 70, 8), normal(2, 3, 90, 8), normal(2, 3, 90, 8), mask)


@pytest.mark.parametrize("shape", [(2, 1, 1, 50), (1, 1, 40, 1), (40, 50), (1, 50), (50,)], ids=str)
def test_masks_that_repeat(shape: tuple[int, ...]) -> None:
    q, k, v = normal(2, 2, 40, 8), normal(2, 2, 50, 8, seed=1), normal(2, 2, 50, 8, seed=2)
    assert_right(by_hand_divided, q, k, v, normal(*shape, seed=3))
    assert_right(masked, q, k, v, normal(*shape, seed=3) > 0)


@pytest.mark.parametrize("length", [12, 64, 150])
def test_the_usual_form_by_hand(length: int) -> None:
    mask = np.tril(np.ones((1, 1, 200, 200), np.float32))
    given = [normal(2, 2, length, 16, seed=n) for n in range(3)]
    assert_right(by_hand, *given, mask)


def test_masks_one_after_the_other() -> None:
    padding = np.zeros((2, 1, 1, 100), bool)
    padding[1, ..., 60:] = True
    given = [normal(2, 2, 100, 8, seed=n) / 4 for n in range(3)]
    assert_right(by_hand_twice_masked, *given, np.tri(100, dtype=bool), padding)


@pytest.mark.parametrize(("heads", "sharing"), [(2, 2), (3, 1), (1, 4)])
def test_heads_that_share_keys(heads: int, sharing: int) -> None:
    q = normal(2, heads * sharing, 70, 8)
    k, v = normal(2, heads, 70, 8, seed=1), normal(2, heads, 70, 12, seed=2)
    assert_right(shared, q, k, v)
    for shape in ((70, 70), (2, 1, 70, 70), (1, heads * sharing, 70, 70), (2, 1, 1, 70)):
        assert_right(shared_masked, q, k, v, normal(*shape, seed=3) > -1)


@pytest.mark.parametrize("batch", [(), (3,), (2, 2, 2)], ids=str)
def test_batches_of_any_rank(batch: tuple[int, ...]) -> None:
    assert_right(causal, *(normal(*batch, 20, 8, seed=n) for n in range(3)))


def test_shared_batches_are_broadcast() -> None:
    def form(q: Any, k: Any, v: Any) -> Any:
        return eg.softmax(q @ k.mT, -1) @ v

    assert_right(form, normal(3, 2, 20, 8), normal(3, 1, 20, 8), normal(3, 2, 20, 8))
    for ranks in ((2, 3, 3), (3, 4, 4), (4, 3, 4)):
        shapes = [(3, 2, 20, 8)[4 - rank :] for rank in ranks]
        given = [normal(*shape, seed=n) for n, shape in enumerate(shapes)]
        compiled = eg.compile(form)
        ours = compiled(*map(eg.tensor, given)).numpy()
        exact = form(*(eg.tensor(np.float64(x)) for x in given)).numpy()
        np.testing.assert_allclose(ours, exact, rtol=0, atol=TOLERANCE)
        assert labels(compiled) == ["attention"]


def test_values_as_they_lie() -> None:
    """Queries, keys and values cut out of one projection, and keys that lie in columns."""

    def heads(x: Any) -> Any:
        return x.view(2, 50, 3, 8).transpose(1, 2)

    def cut(q: Any, k: Any, v: Any) -> Any:
        parts = eg.cat([q, k, v], -1).sin().split(24, dim=-1)
        return causal(*map(heads, parts)).transpose(1, 2).reshape(2, 50, 24)

    def columns(q: Any, k: Any, v: Any) -> Any:
        return causal(*(x.mT.sin().contiguous().mT for x in (q, k, v)))

    assert_right(cut, *(normal(2, 50, 24, seed=n) for n in range(3)))
    assert_right(columns, *(normal(2, 3, 50, 8, seed=n) for n in range(3)))


def test_only_some_gradients() -> None:
    def run(q: Any, k: Any, v: Any) -> Any:
        y = causal(q, k, v)
        wanted = [x for x in (q, k, v) if x.requires_grad]
        return eg.autograd.grad((y * y).sum(), wanted)

    given = [normal(2, 2, 30, 8, seed=n) for n in range(3)]
    for chosen in ((0,), (1,), (2,), (0, 2), (1, 2)):
        tensors = [eg.tensor(a, requires_grad=n in chosen) for n, a in enumerate(given)]
        compiled = eg.compile(run)
        for ours, theirs in zip(compiled(*tensors), run(*tensors), strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=TOLERANCE)
        assert labels(compiled).count("attention_backward") == 1


# -- queries that look nowhere ------------------------------------------------------------------


def same_with_nans(form: Form, *given: Any) -> None:
    run = with_grads(form)
    tensors = [*leaves(*given[:3]), *map(eg.tensor, given[3:])]
    compiled = eg.compile(run)
    for ours, theirs in zip(compiled(*tensors), run(*tensors), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=TOLERANCE)
    assert "attention_backward" in labels(compiled)


@pytest.mark.parametrize("length", [20, 150])
def test_a_query_that_looks_nowhere(length: int) -> None:
    mask = np.tri(length, dtype=bool)
    mask[[3, length - 4]] = False
    given = [normal(1, 2, length, 8, seed=n) for n in range(3)]
    same_with_nans(by_hand, *given, np.float32(mask[None, None]))  # NaN
    same_with_nans(masked, *given, mask)  # zeros


def test_nans_of_the_input_reach_the_same_results() -> None:
    q, k, v = (normal(1, 2, 30, 8, seed=n) for n in range(3))
    q[0, 1, 7, 2] = np.nan
    k[0, 0, 5, 1] = np.inf
    same_with_nans(plain, q, k, v)


# -- what is left alone -------------------------------------------------------------------------


def test_weights_that_something_else_reads() -> None:
    def form(q: Any, k: Any, v: Any) -> Any:
        weights = eg.softmax(q @ k.mT, -1)
        return weights @ v + weights.sum(-2, keepdim=True).mT

    assert_right(form, *(normal(2, 20, 8, seed=n) for n in range(3)), found=False)


def test_a_mask_that_learns() -> None:
    def form(q: Any, k: Any, v: Any) -> Any:
        return eg.softmax(q @ k.mT + (q * k) @ q.mT, -1) @ v

    assert_right(form, *(normal(2, 20, 8, seed=n) for n in range(3)), found=False)


def test_operands_made_of_the_scores() -> None:
    def doubled(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.mT
        return eg.softmax(scores + scores, -1) @ v

    def squared(q: Any, k: Any, v: Any) -> Any:
        weights = eg.softmax(q @ k.mT, -1)
        return weights @ weights.mT + v.sum()

    for form in (doubled, squared):
        assert_right(form, *(normal(2, 20, 8, seed=n) for n in range(3)), found=False)


def test_a_triangle_of_another_size() -> None:
    def form(q: Any, k: Any, v: Any) -> Any:
        all_true = eg.ones(1, 1, dtype=eg.bool).tril()
        return eg.softmax((q @ k.mT).masked_fill(~all_true, -math.inf), -1) @ v

    def own(q: Any, k: Any, v: Any) -> Any:
        return sdpa(q, k, v, attn_mask=eg.full((1, 1), True).tril())

    for given in (form, own):
        assert_right(given, *(normal(2, 20, 8, seed=n) for n in range(3)))


def test_a_gradient_seen_as_it_lies() -> None:
    def run(q: Any, k: Any, v: Any) -> Any:
        (dk,) = eg.autograd.grad(causal(q, k, v).square().sum(), [k])
        return dk.as_strided((8, 20), (20, 1))

    tensors = leaves(*(normal(20, 8, seed=n) for n in range(3)))
    compiled = eg.compile(run)
    np.testing.assert_allclose(compiled(*tensors).numpy(), run(*tensors).numpy(), atol=TOLERANCE)


def test_other_element_types_and_dims() -> None:
    def other_dim(q: Any, k: Any, v: Any) -> Any:
        return eg.softmax(q @ k.mT, -2) @ v

    assert_right(other_dim, *(normal(2, 20, 8, seed=n) for n in range(3)), found=False)
    tensors = leaves(*(np.float64(normal(2, 20, 8, seed=n)) for n in range(3)))
    compiled = eg.compile(with_grads(causal))
    for ours, theirs in zip(compiled(*tensors), with_grads(causal)(*tensors), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=1e-12)
    assert "attention" not in labels(compiled)


@pytest.mark.parametrize("shape", [(0, 4, 8), (2, 0, 8)], ids=str)
def test_nothing_to_attend_to(shape: tuple[int, ...]) -> None:
    tensors = [eg.zeros(shape) for _ in range(3)]
    assert eg.compile(causal)(*tensors).shape == shape


# -- memory, threads, kernels -------------------------------------------------------------------


def test_no_square_of_the_length_is_kept() -> None:
    given = leaves(*(normal(2, 4, 512, 8, seed=n) for n in range(3)))
    for form in (plain, causal):
        plan = eg.compile(with_grads(form)).plan(*given)
        assert max(b.nbytes for b in plan.buffers) < 512 * 512


@pytest.mark.parametrize("heads", [1, 4])
def test_the_same_bits_for_any_number_of_threads(heads: int) -> None:
    given = leaves(*(normal(2, heads, 200, 24, seed=n) for n in range(3)))
    found = []
    for threads in (1, 2, 3):
        eg.set_num_threads(threads)
        compiled = eg.compile(with_grads(causal))
        compiled(*given)
        (program,) = programs_of(compiled)
        program.threads = threads
        found.append([x.numpy().tobytes() for x in compiled(*given)])
    assert found[0] == found[1] == found[2]


def test_kernels_know_no_sizes() -> None:
    steps = (ScoreStep("scale"), ScoreStep("causal"))
    texts = [forward.forward(steps, False), backward.backward(steps)]
    forward.forward.cache_clear()
    backward.backward.cache_clear()
    again = [forward.forward(steps, False), backward.backward(steps)]
    assert texts == again
    names = set()
    for size in (20, 90):
        compiled = eg.compile(with_grads(causal))
        compiled(*leaves(*(normal(size, size, seed=n) for n in range(3))))
        (program,) = programs_of(compiled)
        names.add(tuple(i.kernel.name for i in program.instructions if "attention" in i.label))
    assert len(names) == 1


# -- the rows themselves ------------------------------------------------------------------------


def run_row(op: Any, arrays: list[Any], attrs: dict[str, Any]) -> list[Any]:
    """An equation by its kernel, on arrays."""
    with tracing() as tracer:
        inputs = [tracer.input(eg.from_numpy(a)._type) for a in arrays]
        traced = tracer.finish(list(bind(op, *inputs, **attrs)))
    pure = Graph(traced.inputs, (), traced.equations, traced.outputs)
    graph, constants = lift_captures(optimize(pure, Target.EAGER))
    program = Program(Lowering(graph, LOWERINGS, len(arrays), 0, constants, len(graph.outputs), []))
    assert all(i.kernel is not None for i in program.instructions)
    return program.run(arrays, [])


@pytest.mark.parametrize("empty_is_zero", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_kernels_give_what_the_rows_say(groups: int, empty_is_zero: bool) -> None:
    q, k = normal(2, 2, 70 * groups, 10), normal(2, 2, 150, 10, seed=1)
    v = normal(2, 2, 150, 18, seed=2)
    keep = normal(1, 2 * groups, 150, 70, seed=3) > 0
    keep[..., 5] = False
    masks = [normal(2, 1, 150, 1, seed=4), keep]
    steps = (("add", 0.0), ("scale", 0.4), ("keep", -math.inf))
    attrs: dict[str, Any] = {"steps": steps, "groups": groups, "dropout": None}
    ahead, back = rows.ATTENTION, rows.ATTENTION_BACKWARD
    given = [q, k, v, *masks]
    with np.errstate(all="ignore"):
        y, stats = ahead.eval(*given, **attrs, empty_is_zero=empty_is_zero, order=(0, 1, 2, 3))
        given_back = [q, k, v, normal(*y.shape, seed=5), y, stats, *masks]
        gradients = back.eval(*given_back, **attrs, orders=((0, 1, 2, 3),) * 3)
    found = run_row(ahead, given, {**attrs, "empty_is_zero": empty_is_zero, "order": (0, 1, 2, 3)})
    found += run_row(back, given_back, {**attrs, "orders": ((0, 1, 2, 3),) * 3})
    for ours, theirs in zip(found, [y, stats, *gradients], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=TOLERANCE)


# -- a model ------------------------------------------------------------------------------------


class Training(Scenario):
    """A block with attention, trained."""

    by_hand = False

    def __init__(self) -> None:
        self.qkv = nn.Linear(24, 72)
        self.out = nn.Linear(24, 24)
        self.mask = eg.tril(eg.ones(1, 1, 40, 40))
        parameters = [*self.qkv.parameters(), *self.out.parameters()]
        self.optimizer = eg.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def arguments(self, round: int) -> tuple[Any, ...]:
        return (eg.tensor(normal(2, 30, 24, seed=round)),)

    def step(self, x: Any) -> Any:
        q, k, v = (
            t.view(2, 30, 3, 8).transpose(1, 2) for t in self.qkv(x).split(24, dim=2)
        )  # (2, 3, 30, 8)
        y = by_hand(q, k, v, self.mask) if self.by_hand else causal(q, k, v)
        loss = (self.out(y.transpose(1, 2).reshape(2, 30, 24)) - x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def watched(self) -> Any:
        return [*self.qkv.parameters(), *self.out.parameters()]


class TrainingByHand(Training):
    by_hand = True


@pytest.mark.parametrize("scenario", [Training, TrainingByHand])
def test_training(scenario: type[Training]) -> None:
    check(scenario, rounds=3, tolerance=TOLERANCE)
    step = eg.compile(scenario().step)
    step(eg.tensor(normal(2, 30, 24)))
    assert labels(step).count("attention") == labels(step).count("attention_backward") == 1
