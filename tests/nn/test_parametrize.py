"""Parametrized tensors: registering, values, gradients, assigning, saving, removing."""

from __future__ import annotations

import copy
import pickle
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad import nn
from twins import agree, refuse


def symmetric(ns: Any) -> Any:
    class Symmetric(ns.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a: Any) -> Any:
            return a.triu()

    return Symmetric()


def product(ns: Any) -> Any:
    class Product(ns.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any, y: Any) -> Any:
            return x.unsqueeze(-1) @ y.unsqueeze(-2)

        def right_inverse(self, z: Any) -> Any:
            return z[:, 0].clone(), z[0].clone()

    return Product()


def scale(ns: Any, factor: float = 2.0) -> Any:
    class Scale(ns.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x * factor

    return Scale()


def linear(ns: Any, *shape: int) -> Any:
    ns.manual_seed(4)
    return ns.nn.Linear(*(shape or (3, 3))).double()


def everything(ns: Any, layer: Any, x: Any) -> Any:
    """What a parametrized layer computes and learns, and how it is saved and shown."""
    y = layer(x)
    (y * y).sum().backward()
    grads = {name: p.grad for name, p in layer.named_parameters()}
    return y, grads, dict(layer.state_dict()), repr(layer)


def batch(ns: Any, width: int = 3) -> Any:
    return ns.arange(2.0 * width, dtype=ns.float64).reshape(2, width).sin()


def test_one_tensor(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns)
        weight = layer.weight
        ns.nn.utils.parametrize.register_parametrization(layer, "weight", symmetric(ns))
        assert layer.parametrizations.weight.original is weight
        result = everything(ns, layer, batch(ns))
        layer.weight = ns.eye(3, dtype=ns.float64)
        return result, layer.weight, type(layer).__name__, isinstance(layer, ns.nn.Linear)

    agree(program, torch)


def test_several_tensors_and_a_chain(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns)
        parametrize = ns.nn.utils.parametrize
        parametrize.register_parametrization(layer, "weight", product(ns))
        parametrize.register_parametrization(layer, "weight", scale(ns))
        parametrize.register_parametrization(layer, "bias", scale(ns, 3.0))
        seen = parametrize.is_parametrized(layer), parametrize.is_parametrized(layer, "bias")
        before = parametrize.type_before_parametrizations(layer).__name__
        return seen, before, everything(ns, layer, batch(ns))

    agree(program, torch)


@pytest.mark.parametrize("leave", [True, False])
def test_removing(leave: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns)
        parametrize = ns.nn.utils.parametrize
        original = layer.weight
        parametrize.register_parametrization(layer, "weight", symmetric(ns))
        parametrize.register_parametrization(layer, "bias", scale(ns))
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=leave)
        first = type(layer).__name__
        parametrize.remove_parametrizations(layer, "bias")
        names = [n for n, _ in layer.named_parameters()]
        return first, repr(layer), layer.weight, layer.weight is original, names

    agree(program, torch)


def test_caching(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns)
        ns.nn.utils.parametrize.register_parametrization(layer, "weight", scale(ns))
        with ns.nn.utils.parametrize.cached():
            inside = layer.weight is layer.weight
        return inside, layer.weight is layer.weight

    agree(program, torch)


def test_copies_are_independent_and_pickling_is_refused(torch: ModuleType) -> None:
    layer = linear(evergrad)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.Tanh())
    copied = copy.deepcopy(layer)
    with evergrad.no_grad():
        copied.parametrizations.weight.original.fill_(0)
    assert copied.weight.abs().sum() == 0
    assert layer.weight.abs().sum() > 0
    with pytest.raises(RuntimeError, match="state_dict"):
        pickle.dumps(layer)


def test_transfer(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        source, target = linear(ns), ns.nn.Linear(3, 3).double()
        ns.nn.utils.parametrize.register_parametrization(source, "weight", scale(ns))
        ns.nn.utils.parametrize.transfer_parametrizations_and_params(source, target)
        return target.weight, repr(target)

    agree(program, torch)


@pytest.mark.parametrize(
    "act",
    [
        lambda ns, p, m: p.register_parametrization(m, "nothing", ns.nn.Tanh()),
        lambda ns, p, m: p.register_parametrization(m, "weight", ns.nn.Flatten(0)),
        lambda ns, p, m: p.remove_parametrizations(m, "weight"),
        lambda ns, p, m: p.ParametrizationList([], m.weight),
        lambda ns, p, m: setattr(
            p.register_parametrization(m, "weight", ns.nn.Tanh()), "weight", ns.ones(3, 3).double()
        ),
        lambda ns, p, m: p.remove_parametrizations(
            p.register_parametrization(m, "weight", product(ns)), "weight", False
        ),
    ],
)
def test_mistakes_are_refused(act: Any, torch: ModuleType) -> None:
    refuse(lambda ns: act(ns, ns.nn.utils.parametrize, linear(ns)), torch)


# -- ready-made ones ----------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns, 3, 4)
        ns.nn.utils.parametrizations.weight_norm(layer, dim=dim)
        result = everything(ns, layer, batch(ns))
        state = layer.state_dict()
        former = {
            "bias": state["bias"],
            "weight_g": state["parametrizations.weight.original0"] * 2,
            "weight_v": state["parametrizations.weight.original1"],
        }
        layer.load_state_dict(former)
        return result, layer.weight

    agree(program, torch)


@pytest.mark.parametrize("training", [True, False])
def test_spectral_norm(training: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns, 3, 4)
        ns.manual_seed(5)
        ns.nn.utils.parametrizations.spectral_norm(layer, n_power_iterations=2)
        layer.train(training)
        return everything(ns, layer, batch(ns)), everything(ns, layer, batch(ns))

    agree(program, torch, 1e-8)


def test_spectral_norm_of_convolutions_and_vectors(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(5)
        layers = [ns.nn.Conv1d(2, 3, 2), ns.nn.ConvTranspose1d(2, 3, 2)]
        for layer in layers:
            ns.nn.utils.parametrizations.spectral_norm(layer)
        ns.nn.utils.parametrizations.spectral_norm(layers[0], "bias")
        return [layer.weight for layer in layers], layers[0].bias

    agree(program, torch, 1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder", None])
@pytest.mark.parametrize("trivial", [True, False])
def test_orthogonal(shape: Any, kind: Any, trivial: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns, shape[1], shape[0])
        ns.manual_seed(6)
        ns.nn.utils.parametrizations.orthogonal(
            layer, orthogonal_map=kind, use_trivialization=trivial
        )
        with ns.no_grad():  # away from the starting point
            original = layer.parametrizations.weight.original
            original.add_(ns.arange(float(original.numel())).reshape(shape).sin().tril(-1) / 10)
        y = layer(batch(ns, shape[1]))
        (y * y).sum().backward()
        w = layer.weight
        identity = w @ w.T if shape[0] < shape[1] else w.T @ w
        return y, identity, layer.parametrizations.weight.original.grad

    found = agree(program, torch, 1e-7)
    np.testing.assert_allclose(found[1].detach().numpy(), np.eye(min(shape)), atol=1e-10)


@pytest.mark.parametrize(
    "act",
    [
        lambda ns, p: p.orthogonal(linear(ns), "bias"),
        lambda ns, p: p.orthogonal(linear(ns), "nothing"),
        lambda ns, p: p.orthogonal(linear(ns), orthogonal_map="other"),
        lambda ns, p: p.spectral_norm(linear(ns), "nothing"),
        lambda ns, p: p.spectral_norm(linear(ns), dim=4),
        lambda ns, p: p.spectral_norm(linear(ns), n_power_iterations=0),
    ],
)
def test_ready_made_ones_refuse_mistakes(act: Any, torch: ModuleType) -> None:
    refuse(lambda ns: act(ns, ns.nn.utils.parametrizations), torch)


# -- the former way -----------------------------------------------------------------------------


def test_weight_norm_by_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns, 3, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ns.nn.utils.weight_norm(layer)
        result = everything(ns, layer, batch(ns))
        with ns.no_grad():
            layer.weight_g.mul_(2)
        ns.nn.utils.remove_weight_norm(layer)
        return result, layer.weight, [n for n, _ in layer.named_parameters()]

    agree(program, torch)
    refuse(lambda ns: ns.nn.utils.remove_weight_norm(linear(ns)), torch)


def test_spectral_norm_by_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = linear(ns, 3, 4)
        ns.manual_seed(5)
        ns.nn.utils.spectral_norm(layer, n_power_iterations=3)
        first = everything(ns, layer, batch(ns))
        second = everything(ns, layer.eval(), batch(ns))
        layer.load_state_dict(layer.state_dict())
        ns.nn.utils.remove_spectral_norm(layer)
        return first, second, layer.weight, list(layer.state_dict()), repr(layer)

    agree(program, torch, 1e-8)
    refuse(lambda ns: ns.nn.utils.remove_spectral_norm(linear(ns)), torch)
    refuse(lambda ns: ns.nn.utils.spectral_norm(ns.nn.utils.spectral_norm(linear(ns))), torch)


# -- fusion, wrappers, attention ----------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fused_batch_norms(bias: bool, affine: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(3)
        x = ns.arange(36.0, dtype=ns.float64).reshape(2, 2, 3, 3).sin()
        results = []
        for kind, transposed in (("Conv2d", False), ("ConvTranspose2d", True)):
            conv = getattr(ns.nn, kind)(2, 4, 2, bias=bias).double()
            norm = ns.nn.BatchNorm2d(4, affine=affine).double()
            norm(conv(x))
            conv.eval(), norm.eval()
            fused = ns.nn.utils.fuse_conv_bn_eval(conv, norm, transpose=transposed)
            assert ns.allclose(fused(x), norm(conv(x)))
            results.append((fused.weight, fused.bias))
        layer, norm = ns.nn.Linear(3, 4, bias=bias).double(), ns.nn.BatchNorm1d(4).double()
        norm(layer(x[0, 0]))
        fused = ns.nn.utils.fuse_linear_bn_eval(layer.eval(), norm.eval())
        assert ns.allclose(fused(x[0, 0]), norm(layer(x[0, 0])))
        return results

    agree(program, torch)


def test_data_parallel_passes_calls_on() -> None:
    layer = nn.Linear(2, 3)
    wrapped = nn.DataParallel(layer)
    x = evergrad.ones(4, 2)
    np.testing.assert_array_equal(wrapped(x).detach().numpy(), layer(x).detach().numpy())
    assert wrapped.module is layer
    assert list(wrapped.state_dict()) == ["module.weight", "module.bias"]
    assert nn.parallel.data_parallel(layer, x).shape == (4, 3)


def test_attention_backends_are_accepted(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        q = ns.arange(24.0).reshape(1, 2, 3, 4) / 24
        attention = __import__(f"{ns.__name__}.nn.attention", fromlist=["SDPBackend"])
        with attention.sdpa_kernel([attention.SDPBackend.MATH]):
            return ns.nn.functional.scaled_dot_product_attention(q, q, q)

    agree(program, torch, 1e-6)
    with pytest.raises(AssertionError), nn.attention.sdpa_kernel("math"):  # type: ignore[arg-type]
        pass
