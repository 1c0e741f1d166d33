"""Eager composites as kernels: the same values and derivatives as op by op."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import config
from evergrad.autograd import grad
from evergrad.core import dtypes
from evergrad.core.eager.elementwise import any_extent_loop
from evergrad.core.eager.fusion import (
    _COMPOSITES,
    EagerComposite,
    clear_composite_kernels,
    eager_kernels,
)
from evergrad.core.eager.kernels import _kernels
from evergrad.core.op import TABLE, clear_specializations
from evergrad.core.shapes import tensor_type
from evergrad.memory.ledger import LEDGER
from evergrad.nn import functional as F
from evergrad.ops.composite.norms import _layer_normed
from evergrad.testing import assert_close
from evergrad.testing.checks import CHECKS
from evergrad.testing.samples.table import all_samples
from evergrad.utils.checkpoint import checkpoint

Shapes = tuple[tuple[int, ...], ...]
Case = tuple[Callable[..., Any], Shapes]


def _entropy(x: Any, **options: Any) -> Any:
    classes = x.shape[1]
    return F.cross_entropy(x, eg.arange(x.shape[0]) % classes, **options)


def _recurrent(layer: Any, x: Any, weight: Any, hidden_weight: Any) -> Any:
    gates = len(weight)
    values = {
        "weight_ih_l0": weight, "weight_hh_l0": hidden_weight,
        "bias_ih_l0": eg.zeros(gates, dtype=x.dtype), "bias_hh_l0": eg.ones(gates, dtype=x.dtype),
    }  # fmt: skip
    return eg.func.functional_call(layer, values, (x,))[0]


def _gqa(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def _masked_attention(q: Any, k: Any, v: Any) -> Any:
    mask = eg.ones(5, 6, dtype=eg.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, mask)


def _biased_attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, eg.linspace(-1, 1, 6, dtype=q.dtype))


HEADS: Shapes = ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4))
CASES: dict[str, Case] = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), ((4, 3, 6), (6,), (6,))),
    "layer_norm, two dims": (lambda x: F.layer_norm(x, (3, 6)), ((4, 3, 6),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (6,), w), ((4, 6), (6,))),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), ((2, 4, 3, 3), (4,), (4,))),
    "cross_entropy": (_entropy, ((7, 5),)),
    "cross_entropy, sum": (partial(_entropy, reduction="sum"), ((7, 5),)),
    "cross_entropy, none": (partial(_entropy, reduction="none"), ((7, 5),)),
    "cross_entropy, ignored": (partial(_entropy, ignore_index=2), ((7, 5),)),
    "gelu": (F.gelu, ((5, 7),)),
    "gelu, tanh": (partial(F.gelu, approximate="tanh"), ((5, 7),)),
    "silu": (F.silu, ((5, 7),)),
    "mish": (F.mish, ((5, 7),)),
    "linear": (F.linear, ((2, 5, 4), (3, 4), (3,))),
    "softmax": (partial(F.softmax, dim=-1), ((5, 7),)),
    "log_softmax": (partial(F.log_softmax, dim=0), ((5, 7),)),
    "sigmoid * tanh": (lambda x: x.sigmoid() * x.tanh(), ((5, 7),)),
    "matmul": (lambda a, b: a @ b, ((5, 4), (4, 6))),
    "conv2d": (partial(F.conv2d, padding=1), ((2, 3, 5, 5), (4, 3, 3, 3), (4,))),
    "conv2d, no bias": (partial(F.conv2d, dilation=2), ((2, 3, 7, 7), (4, 3, 3, 3))),
    "conv3d": (F.conv3d, ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), (3,))),
    "lerp, by a number": (lambda x, y: eg.lerp(x, y, 0.3), ((5, 7), (5, 7))),
    "relu": (F.relu, ((5, 7),)),
    "clamp": (lambda x: x.clamp(-0.5, 1) * x.maximum(x * x), ((5, 7),)),
    "leaky_relu * elu": (lambda x: F.leaky_relu(x) * F.elu(x), ((5, 7),)),
    "max_pool2d": (partial(F.max_pool2d, kernel_size=2), ((2, 3, 6, 6),)),
    "max_pool2d, overlapping": (
        partial(F.max_pool2d, kernel_size=3, stride=(1, 2), padding=1),
        ((2, 3, 5, 6),),
    ),
    "max_pool1d, dilated": (partial(F.max_pool1d, kernel_size=2, dilation=3), ((2, 3, 9),)),
    "max_pool3d": (partial(F.max_pool3d, kernel_size=2), ((1, 2, 4, 4, 4),)),
    "avg_pool2d": (partial(F.avg_pool2d, kernel_size=3, stride=2, padding=1), ((2, 3, 5, 6),)),
    "conv1d, strided": (partial(F.conv1d, stride=2), ((2, 3, 9), (4, 3, 3), (4,))),
    "attention": (F.scaled_dot_product_attention, HEADS),
    "attention, causal": (partial(F.scaled_dot_product_attention, is_causal=True), HEADS),
    "attention, masked": (_masked_attention, HEADS),
    "attention, biased": (_biased_attention, HEADS),
    "attention, shared heads": (_gqa, ((2, 4, 5, 4), (2, 2, 6, 4), (2, 2, 6, 4))),
    "LSTM": (partial(_recurrent, eg.nn.LSTM(4, 3)), ((3, 2, 4), (12, 4), (12, 3))),
    "GRU": (partial(_recurrent, eg.nn.GRU(4, 3)), ((3, 2, 4), (9, 4), (9, 3))),
}
every_case = pytest.mark.parametrize("name", CASES)
# One of each kind, for what does not depend on the formula.
KINDS = (
    "layer_norm", "cross_entropy", "gelu", "linear", "attention, causal", "sigmoid * tanh",
    "conv2d", "max_pool2d", "relu",
)  # fmt: skip
every_kind = pytest.mark.parametrize("name", KINDS)
both_types = pytest.mark.parametrize("dtype", [eg.float32, eg.float64], ids=["float32", "float64"])


@pytest.fixture(autouse=True)
def _from_one_element_on() -> Iterator[None]:
    with eager_kernels(least=1):
        yield


def arguments(name: str, dtype: Any = eg.float64) -> list[Any]:
    source = np.random.default_rng(1)
    arrays = [source.standard_normal(shape) for shape in CASES[name][1]]
    return [eg.tensor(a, dtype=dtype).requires_grad_() for a in arrays]


def plainly(function: Callable[..., Any], *args: Any) -> Any:
    with eager_kernels(enabled=False):
        return function(*args)


def with_gradients(name: str, args: list[Any]) -> list[Any]:
    """The value, and first and second gradients in some direction."""
    out = CASES[name][0](*args)
    direction = eg.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).reshape(out.shape)
    first = grad(out, args, direction, retain_graph=True)
    again = grad(out, args, direction, create_graph=True)
    moving = [g.square().sum() for g in again if g.requires_grad]
    with eager_kernels(config.EAGER_KERNELS):  # of the rows in it only large ones
        second = grad(moving, args, allow_unused=True)
    return [out, *first, *again, *(s for s in second if s is not None)]


@every_case
@both_types
def test_values_and_gradients_as_op_by_op(name: str, dtype: Any) -> None:
    args = arguments(name, dtype)
    found, expected = with_gradients(name, args), plainly(with_gradients, name, args)
    exact = {"rtol": 2e-4, "atol": 2e-5} if dtype is eg.float32 else {"rtol": 1e-10, "atol": 1e-10}
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, **exact)


@pytest.mark.parametrize("row", sorted(name for name, op in TABLE.items() if op.eager))
def test_rows_of_the_matrix_with_kernels_at_any_size(row: str) -> None:
    """What the table promises of a row holds when kernels evaluate it: values, in any layout and
    element type, and derivatives."""
    wanted = ("value", "strides", "low_precision", "purity", "leaks", "gradient", "second_gradient")
    for sample in all_samples()[row]:
        for check in (CHECKS[name] for name in wanted):
            if check.applies(sample):
                check.run(sample)


@every_kind
def test_values_that_lie_otherwise(name: str) -> None:
    """Turned around, sliced and expanded arguments are read where they lie."""
    plain = arguments(name)
    turned = [a.detach().movedim(0, -1).contiguous().movedim(-1, 0) for a in plain]
    sliced = [eg.stack([a.detach(), a.detach()], -1)[..., 1] for a in plain]
    expanded = [a.detach()[:1].expand(a.shape) for a in plain]
    for args in (turned, sliced, expanded):
        args = [a.requires_grad_() for a in args]
        found, expected = CASES[name][0](*args), plainly(CASES[name][0], *args)
        assert_close(found, expected, rtol=1e-10, atol=1e-10)
        cotangent = eg.ones((), dtype=found.dtype).expand(found.shape)
        for a, b in zip(grad(found, args, cotangent), grad(expected, args, cotangent), strict=True):
            assert_close(a, b, rtol=1e-10, atol=1e-10)


@every_kind
def test_gradcheck_of_first_and_second_order(name: str) -> None:
    args = arguments(name)
    assert eg.autograd.gradcheck(CASES[name][0], args)
    if name != "attention, causal":  # whose second derivative is compared above
        assert eg.autograd.gradgradcheck(CASES[name][0], args)


@every_kind
def test_the_same_bits_at_every_call_and_for_any_number_of_threads(name: str) -> None:
    args = arguments(name, eg.float32)
    found = []
    threads = eg.get_num_threads()
    try:
        for count in (1, 2, 2):
            eg.set_num_threads(count)
            out = CASES[name][0](*args)
            found.append([out, *grad(out.sum(), args)])
    finally:
        eg.set_num_threads(threads)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


@every_kind
def test_transforms_see_the_ops(name: str) -> None:
    """vmap, jvp, func.grad and linearize trace the function, and give what they give without."""
    function, args = CASES[name][0], [a.detach() for a in arguments(name)]

    def transformed() -> list[Any]:
        _, tangent = eg.func.jvp(function, tuple(args), tuple(args))
        gradient = eg.func.grad(lambda x: function(x, *args[1:]).sum())(args[0])
        batch = eg.stack([args[0], 2 * args[0]])
        mapped = eg.func.vmap(lambda x: function(x, *args[1:]))(batch)
        return [tangent, gradient, mapped]

    for a, b in zip(transformed(), plainly(transformed), strict=True):
        assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_call_is_one_node() -> None:
    x = eg.randn(4, 6, requires_grad=True)
    node = F.layer_norm(x, (6,)).grad_fn
    assert node.name() == "NativeLayerNormBackward0"
    assert [parent for parent, _ in node.next_functions] == [grad_node(x)]


def grad_node(leaf: Any) -> Any:
    return (leaf * 1).grad_fn.next_functions[0][0]


def test_a_trace_has_the_ordinary_ops() -> None:
    """The compiler of whole steps fuses across eager composites: it must see their ops."""
    compiled = eg.compile(lambda x: F.layer_norm(x, (6,)) * 2)
    x = eg.randn(4, 6)
    assert_close(compiled(x), F.layer_norm(x, (6,)) * 2)
    names = str(compiled.explain(x))
    assert "layer_normed" not in names


def test_only_large_calls_get_a_kernel() -> None:
    with eager_kernels():
        assert not _layer_normed.is_profitable((eg.randn(2, 6), None, None))
        assert _layer_normed.is_profitable((eg.randn(4, 6), None, None))
        assert _layer_normed.is_profitable((eg.randn(100, 64), None, None))
        assert not _layer_normed.is_profitable((eg.randn(100, 64).to(eg.complex64), None, None))
    with eager_kernels(enabled=False):
        assert not _layer_normed.is_profitable((eg.randn(100, 64), None, None))


def test_the_setting_is_put_back() -> None:
    before = config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS
    with pytest.raises(ValueError, match="stop"), eager_kernels(enabled=False, least=7):
        assert (config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS) == (False, 7)
        raise ValueError("stop")
    assert before == (config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS)


def test_writing_to_an_argument_before_backward_is_noticed() -> None:
    x = eg.randn(4, 6, requires_grad=True)
    y = x * 1
    out = F.layer_norm(y, (6,))
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_second_backward_is_refused_unless_the_graph_is_kept() -> None:
    x = eg.randn(4, 6, requires_grad=True)
    out = F.gelu(x).sum()
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_hooks_of_tensors_and_nodes_are_called() -> None:
    x = eg.randn(4, 6, requires_grad=True)
    out = F.gelu(x)
    seen: list[str] = []
    out.register_hook(lambda g: seen.append("tensor"))
    out.grad_fn.register_hook(lambda given, got: seen.append(f"node {len(given)} {len(got)}"))
    out.sum().backward()
    assert seen == ["tensor", "node 1 1"]


def test_saved_tensor_hooks_get_the_arguments() -> None:
    x, w = eg.randn(4, 6, requires_grad=True), eg.randn(6, requires_grad=True)
    packed: list[Any] = []

    def pack(tensor: Any) -> Any:
        packed.append(tuple(tensor.shape))
        return tensor.numpy().copy() if not tensor.requires_grad else tensor.detach().numpy().copy()

    with eg.autograd.graph.saved_tensors_hooks(pack, eg.from_numpy):
        out = F.rms_norm(x, (6,), w)
    assert packed == [(4, 6), (6,)]
    found, expected = grad(out.sum(), (x, w)), grad(plainly(F.rms_norm, x, (6,), w).sum(), (x, w))
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint(use_reentrant: bool) -> None:
    x = eg.randn(4, 6, requires_grad=True)

    def block(x: Any) -> Any:
        return F.gelu(F.layer_norm(x, (6,)))

    (expected,) = grad(block(x).square().sum(), x)
    checkpoint(block, x, use_reentrant=use_reentrant).square().sum().backward()
    assert_close(x.grad, expected, rtol=0, atol=0)


def test_autocast_converts_as_without_kernels() -> None:
    x, w, b = (eg.randn(*s, requires_grad=True) for s in ((4, 6), (3, 6), (3,)))
    with eg.autocast("cpu", eg.bfloat16):
        found, expected = F.linear(x, w, b), plainly(F.linear, x, w, b)
        normed = F.layer_norm(x, (6,))
    assert found.dtype is eg.bfloat16
    assert found.tolist() == expected.tolist()
    assert normed.dtype is eg.float32


def test_errors_are_those_of_the_function() -> None:
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(eg.randn(4, 6), (5,))
    with pytest.raises(IndexError, match="out of bounds"):
        F.cross_entropy(eg.randn(4, 6), eg.tensor([0, 1, 2, 6]))
    with pytest.raises(RuntimeError, match="same dtype"):
        F.linear(eg.randn(4, 6), eg.randn(3, 6).double(), eg.randn(3))


def test_infinities_and_nan_as_op_by_op() -> None:
    x = eg.tensor([[0.0, -np.inf, 1.0], [np.nan, 0.0, 1.0], [np.inf, 0.0, 1.0], [300, -300, 0]])
    for function in (
        F.gelu, F.silu, eg.sigmoid, partial(F.softmax, dim=1), lambda x: F.layer_norm(x, (3,)),
        partial(F.cross_entropy, target=eg.tensor([0, 1, 2, 0]), reduction="none"),
    ):  # fmt: skip
        assert_close(function(x), plainly(function, x), equal_nan=True)


def test_what_was_not_chosen_has_no_gradient() -> None:
    """Infinite derivatives before an eager composite, behind which a selection drops elements."""
    x = eg.tensor([[0.0, 0.0], [1.0, 4.0]], requires_grad=True)
    out = F.layer_norm(x.sqrt(), (2,), eps=1.0)
    eg.where(eg.tensor([[False], [True]]), out, 0).sum().backward()
    assert x.grad[0].tolist() == [0.0, 0.0]


def test_several_threads_at_once_get_their_own_results() -> None:
    inputs = [eg.randn(64, 32) for _ in range(4)]
    expected = [F.layer_norm(x, (32,)).tolist() for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(40):
            if F.layer_norm(inputs[number], (32,)).tolist() != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_training_holds_no_more_memory_step_by_step() -> None:
    layer = eg.nn.Sequential(eg.nn.Linear(8, 16), eg.nn.GELU(), eg.nn.LayerNorm(16))
    optimizer = eg.optim.AdamW(layer.parameters())
    x = eg.randn(32, 8)

    def step() -> None:
        optimizer.zero_grad()
        _entropy(layer(x)).backward()
        optimizer.step()

    for _ in range(3):
        step()
    gc.collect()
    before = LEDGER.live, LEDGER.count
    for _ in range(20):
        step()
    assert (LEDGER.live, LEDGER.count) == before


def test_kernels_are_given_up_without_the_collector() -> None:
    # Kernels of earlier tests may hold specializations that their rows have dropped meanwhile.
    clear_specializations()
    x = eg.randn(5, 7, requires_grad=True)
    F.gelu(x).sum().backward()
    eg.sigmoid(x).sum().backward()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        clear_composite_kernels()
        gc.collect()
        names = [type(thing).__module__ for thing in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not [name for name in names if name.startswith("evergrad")]


def test_shapes_that_never_repeat_are_left_to_numpy() -> None:
    function = EagerComposite(lambda x: x * 2 + 1, least=1, size=None, keeps=0)
    for length in range(1, 80):
        assert_close(function(eg.ones(length)), eg.full((length,), 3.0))
    assert len(function.specializations) == 6
    assert sum(len(f.specializations) for f in _COMPOSITES) <= 256


def test_shapes_of_another_kind_get_kernels_all_the_same() -> None:
    function = EagerComposite(lambda x: x * 2 + 1, least=1, size=None, keeps=0)
    for width in range(1, 8):
        for length in range(1, 9):
            function(eg.ones(length, width))
    assert len(function.specializations) == 7 * 6
    for _ in range(40):
        for length in range(1, 9):
            function(eg.ones(length, 4))
    # A shape has its kernel from the first call on or never: its results stay the same.
    assert len(function.specializations) == 7 * 6


def test_kinds_of_shapes_are_bounded() -> None:
    function = EagerComposite(lambda x: x * 2 + 1, least=1, size=None, keeps=0)
    for width in range(1, 300):
        function(eg.ones(1, width))
    for length in range(1, 300):
        function(eg.ones(length, 4))
    assert len(function.kinds) <= 256


def test_optimizers_step_as_piece_by_piece() -> None:
    def trained(name: str, options: dict[str, Any]) -> Any:
        source = np.random.default_rng(0)
        parameters = [eg.tensor(source.standard_normal(s)).requires_grad_() for s in (7, (300, 70))]
        optimizer = getattr(eg.optim, name)(parameters, **options)
        for _ in range(3):
            for p in parameters:
                p.grad = eg.tensor(source.standard_normal(tuple(p.shape)))
            optimizer.step()
        return parameters

    for name, options in (
        ("Adam", {}), ("AdamW", {"amsgrad": True}), ("SGD", {"lr": 0.1, "momentum": 0.9}),
        ("RMSprop", {"centered": True}), ("Adagrad", {}), ("NAdam", {}),
    ):  # fmt: skip
        found, expected = trained(name, options), plainly(trained, name, options)
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which this system lacks")
def test_a_forked_child_uses_the_kernels() -> None:
    x = eg.randn(64, 32)
    expected = F.layer_norm(x, (32,)).tolist()
    program = (
        "import os, evergrad as eg\n"
        "from evergrad.core.eager.fusion import eager_kernels\n"
        "with eager_kernels(least=1):\n"
        "    x = eg.arange(2048.0).reshape(64, 32).sin()\n"
        "    expected = eg.nn.functional.layer_norm(x, (32,)).tolist()\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        same = eg.nn.functional.layer_norm(x, (32,)).tolist() == expected\n"
        "        os._exit(0 if same else 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert F.layer_norm(x, (32,)).tolist() == expected


def test_the_compiler_is_loaded_by_the_first_large_call() -> None:
    program = (
        "import sys, evergrad as eg\n"
        "eg.nn.functional.gelu(eg.ones(8))\n"
        "assert 'evergrad.compiler.eager.composites' not in sys.modules\n"
        "eg.nn.functional.gelu(eg.ones(8192))\n"
        "assert 'evergrad.compiler.eager.composites' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_rows_have_kernels_too() -> None:
    _kernels.clear()
    F.conv2d(eg.ones(1, 1, 4, 4), eg.ones(1, 1, 3, 3))
    assert [name for name, *_ in _kernels] == ["conv"]
    F.conv3d(eg.ones(1, 1, 4, 4, 4), eg.ones(1, 1, 3, 3, 3))
    assert all(_kernels.values())  # three dimensions as two


def test_a_loop_for_any_extent_takes_empty_arrays() -> None:
    op, kind = TABLE["mul"], tensor_type((2, 3), dtypes.float32)
    run = any_extent_loop(op, {}, (kind, kind), kind, np.multiply)
    empty = np.empty((0, 3), np.float32)
    assert run(empty, empty).shape == (0, 3)
    full = np.full((400, 3), 2, np.float32)
    np.testing.assert_array_equal(run(full, full), full * full)
