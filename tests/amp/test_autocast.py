"""Autocast as a mode: where it holds, how it nests, what it keeps, what training makes of it."""

from __future__ import annotations

import threading
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.core.state import STATE
from twins import agree, refuse


def product(ns: Any, dtype: str = "float32") -> Any:
    return ns.ones(2, 2, dtype=getattr(ns, dtype)) @ ns.ones(2, 2, dtype=getattr(ns, dtype))


def kind(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


# -- the mode -----------------------------------------------------------------------------------


def nesting(ns: Any) -> list[Any]:
    found = [kind(product(ns)), ns.is_autocast_enabled("cpu")]
    with ns.autocast("cpu", dtype=ns.bfloat16):
        found += [kind(product(ns)), ns.is_autocast_enabled("cpu"), ns.is_autocast_enabled()]
        with ns.autocast("cpu", enabled=False):
            found += [kind(product(ns)), ns.is_autocast_enabled("cpu")]
            with ns.amp.autocast("cpu", dtype=ns.float16):
                found += [kind(product(ns)), str(ns.get_autocast_dtype("cpu"))[-7:]]
        found += [kind(product(ns)), str(ns.get_autocast_dtype("cpu"))[-8:]]
    return [*found, kind(product(ns)), kind(product(ns, "float64"))]


def test_modes_nest(torch: ModuleType) -> None:
    agree(nesting, torch)


def test_it_decorates(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        @ns.autocast(device_type="cpu", dtype=ns.bfloat16)
        def function() -> str:
            """What it does."""
            return kind(product(ns))

        return function(), function(), kind(product(ns)), function.__doc__

    agree(program, torch)


def test_a_decorated_function_may_call_itself() -> None:
    @evergrad.autocast("cpu")
    def function(n: int) -> list[str]:
        return [kind(product(evergrad))] + (function(n - 1) if n else [])

    assert function(2) == ["bfloat16"] * 3
    assert kind(product(evergrad)) == "float32"


def test_float64_is_left_alone(torch: ModuleType) -> None:
    def program(ns: Any) -> str:
        with ns.autocast("cpu"):
            return kind(product(ns, "float64"))

    agree(program, torch)


def test_switches(torch: ModuleType) -> None:
    def program(ns: Any) -> list[Any]:
        found: list[Any] = [ns.is_autocast_cache_enabled()]
        ns.set_autocast_enabled("cpu", True)
        found.append(kind(product(ns)))
        ns.set_autocast_dtype("cpu", ns.float16)
        found.append(kind(product(ns)))
        ns.set_autocast_dtype("cpu", ns.bfloat16)
        ns.set_autocast_enabled("cpu", False)
        ns.clear_autocast_cache()
        found += [kind(product(ns)), ns.amp.is_autocast_available("cpu")]
        found += [str(ns.get_autocast_dtype(d))[-5:] for d in ("cpu", "cuda", "mps", "xpu")]
        return found

    agree(program, torch)


@pytest.mark.parametrize(
    "call",
    [
        lambda ns: ns.autocast("nowhere"),
        lambda ns: ns.autocast(ns.device("cpu")),
        lambda ns: ns.is_autocast_enabled("nowhere"),
        lambda ns: ns.amp.is_autocast_available("nowhere"),
        lambda ns: ns.amp.custom_fwd(device_type=1),
        lambda ns: ns.set_autocast_enabled("nowhere", True),
    ],
)
def test_devices_that_do_not_exist_are_refused(call: Any, torch: ModuleType) -> None:
    refuse(call, torch)


@pytest.mark.parametrize(
    "call",
    [
        lambda ns: ns.autocast("cuda"),
        lambda ns: ns.autocast("cpu", dtype=ns.float32),
        lambda ns: ns.cpu.amp.autocast(),
        lambda ns: ns.cpu.amp.GradScaler(),
        lambda ns: ns.amp.GradScaler(),
        lambda ns: ns.cuda.amp.custom_fwd(lambda ctx, x: x),
    ],
)
def test_warnings_are_those_of_torch(call: Any, torch: ModuleType) -> None:
    kinds = []
    for ns in (evergrad, torch):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = call(ns)
        kinds.append(([w.category for w in caught], getattr(made, "_enabled", None)))
    assert kinds[0] == kinds[1]


def test_an_accelerator_that_is_not_there_changes_nothing() -> None:
    with pytest.warns(UserWarning, match="Disabling"), evergrad.autocast("cuda"):
        assert kind(product(evergrad)) == "float32"
    with evergrad.autocast("mps"):
        assert kind(product(evergrad)) == "float32"
    with pytest.raises(RuntimeError, match="computes on the CPU"):
        evergrad.set_autocast_enabled("cuda", True)


def test_threads_do_not_share_the_mode() -> None:
    seen = []
    with evergrad.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(kind(product(evergrad))))
        thread.start()
        thread.join()
        assert kind(product(evergrad)) == "bfloat16"
    assert seen == ["float32"]


def test_nothing_stays_behind_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), evergrad.autocast("cpu"):
        _ = 1 / 0
    assert STATE.get().autocast is None and not STATE.get().intercepted


# -- gradients ----------------------------------------------------------------------------------


def test_a_weight_is_cast_once_in_a_block() -> None:
    weight = evergrad.ones(2, 2, requires_grad=True)
    with evergrad.autocast("cpu"):
        first = (evergrad.ones(2, 2) @ weight).grad_fn.next_functions
        second = (evergrad.ones(2, 2) @ weight).grad_fn.next_functions
        assert first[-1][0] is second[-1][0]
        with evergrad.no_grad():
            weight.add_(1)  # what was remembered no longer holds
        assert (evergrad.ones(2, 2) @ weight)[0, 0].item() == 4
    with evergrad.autocast("cpu", cache_enabled=False):
        third = (evergrad.ones(2, 2) @ weight).grad_fn.next_functions
        fourth = (evergrad.ones(2, 2) @ weight).grad_fn.next_functions
        assert third[-1][0] is not fourth[-1][0]


def model(ns: Any) -> Any:
    return ns.nn.Sequential(
        ns.nn.Conv2d(1, 4, 3, padding=1), ns.nn.BatchNorm2d(4), ns.nn.ReLU(), ns.nn.Flatten(),
        ns.nn.Linear(64, 16), ns.nn.LayerNorm(16), ns.nn.GELU(), ns.nn.Linear(16, 3),
    )  # fmt: skip


def train(ns: Any) -> Any:
    ns.manual_seed(0)
    net = model(ns)
    optimizer = ns.optim.SGD(net.parameters(), lr=0.05)
    generator = np.random.default_rng(0)
    x = ns.tensor(generator.standard_normal((8, 1, 4, 4)).astype(np.float32))
    y = ns.tensor(generator.integers(0, 3, 8))
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with ns.autocast("cpu", dtype=ns.bfloat16):
            scores = net(x)
            loss = ns.nn.functional.cross_entropy(scores, y)
        assert kind(scores) == "bfloat16" and kind(loss) == "float32"
        loss.backward()
        assert all(kind(p.grad) == "float32" for p in net.parameters())
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_follows_torch(torch: ModuleType) -> None:
    """Each step rounds to bfloat16 (8 bits) in other places, so losses agree to 2 per cent."""
    np.testing.assert_allclose(train(evergrad), train(torch), rtol=0.02)


# The types of the results under autocast.
_RECURRENT = {
    "LSTM": "bfloat16", "GRU": "float32", "RNN": "bfloat16", "LSTMCell": "float32",
    "GRUCell": "float32", "RNNCell": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize("layer", _RECURRENT)
def test_recurrent_layers_give_the_precision_of_torch(layer: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(1)
        module = getattr(ns.nn, layer)(4, 4)
        x = ns.linspace(-1, 1, 24).reshape((3, 2, 4) if "Cell" not in layer else (6, 4))
        with ns.autocast("cpu"):
            result = module(x)
        output = result[0] if isinstance(result, tuple) else result
        output.float().sum().backward()
        return kind(output), kind(module.weight_ih_l0.grad if "Cell" not in layer else x), output

    assert program(evergrad)[:2] == (_RECURRENT[layer], "float32")
    try:
        program(torch)
    except RuntimeError as error:
        if "primitive" not in str(error) or torch.ops.mkldnn._is_mkldnn_bf16_supported():
            raise
        pytest.skip(
            f"PyTorch has no {layer} in bfloat16 here: oneDNN needs AVX-512 (avx512bw, avx512vl, "
            f"avx512dq), this CPU has {torch.backends.cpu.get_cpu_capability()}: {error}"
        )
    agree(program, torch, tolerance=2**-6)


def test_attention_layers_give_the_precision_of_torch(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(1)
        attention, encoder = ns.nn.MultiheadAttention(4, 2), ns.nn.TransformerEncoderLayer(4, 2, 8)
        x = ns.linspace(-1, 1, 24).reshape(3, 2, 4)
        with ns.autocast("cpu"):
            output, weights = attention(x, x, x)
            return kind(output), kind(weights), kind(encoder(x)), output

    agree(program, torch, tolerance=2**-6)


def test_checkpointing_runs_again_in_the_same_mode() -> None:
    from evergrad.utils.checkpoint import checkpoint

    weight = evergrad.ones(3, 3, requires_grad=True)
    x = evergrad.full((2, 3), 1.01)
    with evergrad.autocast("cpu"):
        loss = checkpoint(lambda t: ((t @ weight) ** 2).sum(), x, use_reentrant=False)
        plain = ((x @ weight) ** 2).sum()
    loss.backward()
    kept, weight.grad = weight.grad, None
    plain.backward()
    evergrad.testing.assert_close(kept, weight.grad, rtol=0, atol=0)


def test_backward_and_transforms_inside_the_mode() -> None:
    weight = evergrad.ones(3, 3, requires_grad=True)
    x = evergrad.arange(6.0).reshape(2, 3)
    with evergrad.autocast("cpu"):
        (gradient,) = evergrad.autograd.grad((x @ weight).float().square().sum(), weight,
                                             create_graph=True)  # fmt: skip
        assert kind(gradient) == "float32"
        rows = evergrad.vmap(lambda row: row @ weight)(x)
        assert kind(rows) == "bfloat16"
        attended = evergrad.vmap(evergrad.nn.functional.scaled_dot_product_attention)(
            *[x.reshape(1, 2, 3)] * 3
        )
        assert kind(attended) == "bfloat16"
        tangent = evergrad.func.jvp(lambda t: t @ weight, (x,), (x,))[1]
        assert kind(tangent) == "bfloat16"
    gradient.sum().backward()
    assert kind(weight.grad) == "float32"


# -- custom functions ---------------------------------------------------------------------------


def custom(ns: Any, cast_inputs: bool) -> Any:
    seen: list[str] = []

    class Product(ns.autograd.Function):
        @staticmethod
        @ns.amp.custom_fwd(device_type="cpu", cast_inputs=ns.float32 if cast_inputs else None)
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            seen.append(kind(a))
            return a @ b

        @staticmethod
        @ns.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            seen.append(kind(ns.ones(2, 2) @ ns.ones(2, 2)))
            return g.to(a.dtype) @ b.t().to(a.dtype), a.t() @ g.to(a.dtype)

    a = ns.ones(2, 2, requires_grad=True)
    b = ns.full((2, 2), 2.0, requires_grad=True)
    with ns.autocast("cpu"):
        result = Product.apply(a.bfloat16() if cast_inputs else a, b)
    seen.append(kind(result))
    result.float().sum().backward()
    return seen, a.grad, b.grad


@pytest.mark.parametrize("cast_inputs", [False, True])
def test_custom_functions(cast_inputs: bool, torch: ModuleType) -> None:
    agree(lambda ns: custom(ns, cast_inputs), torch)


SPARSE_PRODUCTS: dict[str, Any] = {
    "@": lambda ns, s, d: s @ d,
    "dense first": lambda ns, s, d: d.t() @ s.t(),
    "vector": lambda ns, s, d: s @ d[:, 0],
    "mm": lambda ns, s, d: ns.mm(s, d),
    "addmm": lambda ns, s, d: ns.addmm(ns.ones(6, 4), s, d),
    "sparse.mm": lambda ns, s, d: ns.sparse.mm(s, d),
    "sparse.addmm": lambda ns, s, d: ns.sparse.addmm(ns.ones(6, 4), s, d),
    "linear": lambda ns, s, d: ns.nn.functional.linear(d.t(), s),
}


@pytest.mark.parametrize("name", SPARSE_PRODUCTS)
def test_sparse_products_are_lowered(name: str, torch: ModuleType) -> None:
    """As PyTorch's; the gradients, which it does not have for all, are those of float32."""
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((6, 5)).astype(np.float32) * (rng.random((6, 5)) < 0.5)
    factor = rng.standard_normal((5, 4)).astype(np.float32)

    def product(ns: Any, enabled: bool) -> Any:
        dense = ns.tensor(factor, requires_grad=True)
        with ns.autocast("cpu", dtype=ns.bfloat16, enabled=enabled):
            out = SPARSE_PRODUCTS[name](ns, ns.tensor(matrix).to_sparse(), dense)
        return out, dense

    found, dense = product(evergrad, enabled=True)
    expected, _ = product(torch, enabled=True)
    assert found.dtype is evergrad.bfloat16 and expected.dtype is torch.bfloat16
    whole, other = product(evergrad, enabled=False)
    for out in (found, whole):
        out.float().sum().backward()
    pairs = (found, expected), (found, whole), (dense.grad, other.grad)
    for a, b in pairs:
        np.testing.assert_allclose(
            a.detach().float().numpy(), b.detach().float().numpy(), rtol=2**-5, atol=2**-5
        )
    assert dense.grad.dtype is evergrad.float32


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_16_bit_sums_with_sparse_products(layout: str) -> None:
    """Without the mode, too; PyTorch has them for coordinates alone."""
    for kind in (evergrad.bfloat16, evergrad.float16):
        weight = getattr(evergrad.ones(4, 3).to(kind), layout)()
        x, bias = evergrad.ones(2, 3).to(kind), evergrad.ones(4).to(kind)
        assert (evergrad.nn.functional.linear(x, weight, bias) == 4).all()
        assert (evergrad.addmm(evergrad.ones(4, 2).to(kind), weight, x.t()) == 4).all()


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_nested_linear_layers_add_their_bias(kind: str) -> None:
    """On the values, before they are rounded, as for a dense batch."""
    evergrad.manual_seed(0)
    layer = evergrad.nn.Linear(4, 3)
    parts = [evergrad.randn(n, 4) for n in (2, 0, 3)]
    x = evergrad.nested.nested_tensor(parts, layout=evergrad.jagged, requires_grad=True)
    with evergrad.autocast("cpu", dtype=getattr(evergrad, kind)):
        y, expected = layer(x), layer(evergrad.cat(parts))
    assert y.dtype is expected.dtype is getattr(evergrad, kind)
    assert evergrad.equal(y.values(), expected)
    y.values().float().sum().backward()
    assert x.grad is not None and layer.bias.grad.tolist() == [5.0] * 3
    narrow = layer.to(getattr(evergrad, kind))
    assert evergrad.equal(narrow(x.to(y.dtype)).values(), narrow(evergrad.cat(parts).to(y.dtype)))
