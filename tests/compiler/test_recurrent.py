"""Compiled recurrent layers: one kernel goes through time, whatever the order of the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.compiler.native.jit import has_fma
from evergrad.core.bind import bind
from evergrad.core.eager.fusion import eager_kernels
from evergrad.nn.utils.rnn import pack_padded_sequence
from evergrad.ops.rows.recurrent.layer import CELLS, ROWS
from evergrad.ops.rows.recurrent.steps import Course

from .steps import arrays, assert_alike, programs_of, randn

STEPS, BATCH, INPUTS, HIDDEN = 7, 3, 5, 6
LAYERS = {"RNN": 1, "GRU": 3, "LSTM": 4}  # with their gates
KINDS = {"relu": ("RNN", {"nonlinearity": "relu"}), **{kind: (kind, {}) for kind in LAYERS}}
every_kind = pytest.mark.parametrize("kind", KINDS)


def training(kind: str, is_compiled: bool) -> tuple[Any, Any]:
    """A step that trains a layer with weight decay and keeps its gradients; and its parameters."""
    eg.manual_seed(0)
    layer = getattr(nn, kind)(INPUTS, HIDDEN).double()
    optimizer = eg.optim.SGD(layer.parameters(), lr=0.1, weight_decay=0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return eg.compile(step) if is_compiled else step, list(layer.parameters())


both_types = pytest.mark.parametrize("dtype", [eg.float32, eg.float64], ids=["float32", "float64"])


needs_fma = pytest.mark.skipif(
    not has_fma(), reason="without FMA a weight's gradient is a product inside the row's evaluation"
)


@every_kind
@both_types
def test_layers_without_kernels_match_steps(kind: str, dtype: Any) -> None:
    """With four gates of one unit NumPy's ``negative`` read neighbours instead of the column."""
    for hidden in (1, 2, 4, 8):
        case = Case(kind, 3, hidden, dtype)
        x = randn(4, 7, 3).to(dtype).requires_grad_()
        whole = by_numpy(case, x)[0]
        single = [by_numpy(case, x[:, n : n + 1].detach().requires_grad_())[0] for n in range(7)]
        close([whole], [eg.cat(single, 1)], dtype)


@pytest.mark.parametrize("kind", LAYERS)
def test_training(kind: str) -> None:
    x = randn(STEPS, BATCH, INPUTS)
    (compiled, found), (eager, expected) = (training(kind, c) for c in (True, False))
    for _ in range(2):
        assert_alike([compiled(x)], [eager(x)], 1e-12)
        assert_alike([p.grad for p in found], [p.grad for p in expected], 1e-12)
        assert_alike(found, expected, 1e-12)


# -- values and gradients -----------------------------------------------------------------------


class Case:
    """A layer, and a function of its input that gives results, last state and all gradients."""

    def __init__(self, kind: str, inputs: int, hidden: int, dtype: Any, **options: Any) -> None:
        eg.manual_seed(0)
        name, more = KINDS[kind]
        self.layer = getattr(nn, name)(inputs, hidden, dtype=dtype, **more, **options)

    def __call__(self, x: Any, *state: Any) -> Any:
        y, last = self.layer(x, *state)
        y = y.data if isinstance(y, nn.utils.rnn.PackedSequence) else y
        ends = last if isinstance(last, tuple) else (last,)
        total = (y * y).sum() + sum((1.5 * s).sin().sum() for s in ends)
        return y, ends, eg.autograd.grad(total, [x, *self.layer.parameters()])


def by_numpy(function: Any, *args: Any) -> Any:
    with eager_kernels(enabled=False):
        return function(*args)


def labels_of(compiled: Any) -> list[str]:
    (program,) = programs_of(compiled)
    # Without FMA the rows of recurrent layers are evaluated by NumPy.
    if has_fma():
        assert all(i.kernel is not None for i in program.instructions), "NumPy is called"
    return [instruction.label for instruction in program.instructions]


def close(found: Any, expected: Any, dtype: Any) -> None:
    assert_alike(found, expected, 1e-11 if dtype is eg.float64 else 2e-5)


SIZES = ((1, 1, 1, 1), (2, 7, 3, 1), (5, 8, 3, 16), (3, 35, 20, 49), (2, 17, 4, 100))


@every_kind
@both_types
def test_sizes(kind: str, dtype: Any) -> None:
    """Rows and columns of tiles that are full, and ends of them."""
    for steps, batch, inputs, hidden in SIZES:
        case = Case(kind, inputs, hidden, dtype)
        x = randn(steps, batch, inputs).to(dtype).requires_grad_()
        compiled = eg.compile(case)
        close(compiled(x), by_numpy(case, x), dtype)
        labels_of(compiled)


@every_kind
def test_both_directions_batch_first(kind: str) -> None:
    case = Case(kind, 4, 5, eg.float32, num_layers=2, bidirectional=True, batch_first=True)
    x = randn(9, 6, 4).float().requires_grad_()
    compiled = eg.compile(case)
    close(compiled(x), by_numpy(case, x), eg.float32)
    backward = sum("layer_backward" in label for label in labels_of(compiled))
    assert backward == (8 if has_fma() else 4)  # 4 pack weights


@every_kind
@pytest.mark.parametrize("bidirectional", [False, True])
def test_sequences_of_different_lengths(kind: str, bidirectional: bool) -> None:
    case = Case(kind, 4, 5, eg.float64, bidirectional=bidirectional)
    lengths = sorted(np.random.default_rng(0).integers(1, 7, 20).tolist(), reverse=True)

    def packed(x: Any) -> Any:
        given = pack_padded_sequence(x, lengths)
        y, last = case.layer(given)
        ends = last if isinstance(last, tuple) else (last,)
        total = (y.data * y.data).sum() + sum(s.sin().sum() for s in ends)
        return y.data, ends, eg.autograd.grad(total, [x, *case.layer.parameters()])

    x = randn(lengths[0], len(lengths), 4).requires_grad_()
    close(eg.compile(packed)(x), by_numpy(packed, x), eg.float64)


@every_kind
def test_arguments_that_do_not_lie_in_order(kind: str) -> None:
    case = Case(kind, 4, 5, eg.float64)
    case.layer.weight_hh_l0 = nn.Parameter(randn(5, len(case.layer.weight_hh_l0)).t())
    case.layer.weight_ih_l0 = nn.Parameter(randn(len(case.layer.weight_ih_l0), 8)[:, ::2])
    x = randn(4, 3, 6).transpose(0, 2).requires_grad_()
    state = randn(1, 5, 3).transpose(1, 2)
    given = (state, state) if kind == "LSTM" else state
    close(eg.compile(case)(x, given), by_numpy(case, x, given), eg.float64)


@every_kind
def test_the_same_bits_for_any_number_of_threads(kind: str) -> None:
    case = Case(kind, 16, 24, eg.float32)
    x = randn(20, 70, 16).float().requires_grad_()
    found = []
    for threads in (1, 2, 3):
        eg.set_num_threads(threads)
        compiled = eg.compile(case)
        compiled(x)
        for program in programs_of(compiled):
            program.threads = threads
        found.append(arrays(compiled(x)))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@every_kind
def test_no_sequences(kind: str) -> None:
    case = Case(kind, 4, 5, eg.float32)
    x = eg.zeros(3, 0, 4).requires_grad_()
    close(eg.compile(case)(x), by_numpy(case, x), eg.float32)


@every_kind
def test_a_compiled_layer_that_is_differentiated_from_outside(kind: str) -> None:
    case = Case(kind, 4, 5, eg.float64)
    x = randn(6, 3, 4).requires_grad_()
    found, expected = [], []
    for layer, gradients in ((eg.compile(case.layer), found), (case.layer, expected)):
        first = eg.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)[0]
        gradients += [first, *eg.autograd.grad(first.square().sum(), [x, *case.layer.parameters()])]
    close(found, expected, eg.float64)


def test_curves_of_gates() -> None:
    """Both curves within a few units in the last place, far from zero and near; NaN stays NaN."""
    x = np.concatenate([np.linspace(-80, 80, 20_001), np.geomspace(1e-30, 87, 4_001)])
    x = np.concatenate([x, [np.inf, -np.inf, np.nan, 0.0]]).astype(np.float32)[:, None]
    one, zero = eg.ones(4, 1), eg.zeros(4, 1)
    state = eg.zeros(len(x), 1)
    given = (eg.tensor(x), state, state, one, zero, zero[:, 0], zero[:, 0])
    with eager_kernels(least=1):
        gates = bind(ROWS["lstm"], *given, course=Course((len(x),)))[3].array()
    exact = x[:, 0].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        curves = {0: 1 / (1 + np.exp(-exact)), 2: np.tanh(exact)}
        for gate, curve in curves.items():
            away = np.abs(gates[:, gate] - curve) / np.spacing(np.abs(curve).astype(np.float32))
            settled = np.isfinite(exact)
            assert away[settled].max() < 5
            assert np.isnan(gates[-2, gate]) and np.abs(gates[:-2, gate]).max() <= 1
            np.testing.assert_array_equal(gates[-4:-2, gate], [1, 0 if gate == 0 else -1])


# -- what programs are made of ------------------------------------------------------------------


@needs_fma
@pytest.mark.parametrize("kind", LAYERS)
def test_the_gradient_of_a_weight_is_one_product(kind: str) -> None:
    """Also if the gradient is kept, and the optimizer adds to it."""
    compiled, _ = training(kind, True)
    compiled(randn(STEPS, BATCH, INPUTS))
    labels = labels_of(compiled)
    rows = LAYERS[kind] * HIDDEN
    assert labels.count(f"matmul {rows}x{HIDDEN}x{STEPS * BATCH}") == 1
    assert f"matmul {rows}x{HIDDEN}x{BATCH}" not in labels


@every_kind
def test_a_program_does_not_grow_with_the_number_of_steps(kind: str) -> None:
    case = Case(kind, 4, 5, eg.float32)
    counts = []
    for steps in (2, 50):
        compiled = eg.compile(case)
        compiled(randn(steps, 3, 4).float().requires_grad_())
        counts.append(len(labels_of(compiled)))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("options", "tolerance"), [
    ({"proj_size": 2, "dtype": eg.float64}, 1e-12), ({"dtype": eg.bfloat16}, 2**-7),
])  # fmt: skip
def test_layers_that_go_step_by_step(options: Any, tolerance: float) -> None:
    """They have no row; compiled they are what they are eagerly."""
    layer = nn.LSTM(4, 5, **options)
    x = randn(3, 2, 4).to(layer.weight_ih_l0.dtype)
    for found, expected in zip(arrays(eg.compile(layer)(x)), arrays(layer(x)), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=tolerance)


@every_kind
def test_no_zeros_are_made_for_what_is_kept(kind: str) -> None:
    """Backward looks at the gradients of results and last state; gates and states have none."""
    case = Case(kind, 4, 5, eg.float32)
    node = case.layer(randn(3, 2, 4).float())[0]._node
    while "layer" not in node.name().lower():
        (node,) = (parent for parent in node.parents if parent is not None)
    results = 1 + CELLS[case.layer.mode.lower()].state
    assert node.vjp_program.unread == set(range(results, len(node.out_types())))
