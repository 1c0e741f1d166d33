"""Attributes and keywords that packages read although PyTorch does not document them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest
from evergrad.as_torch import refusals

import evergrad
from evergrad import removed
from evergrad.nn.module import Module
from twins import agree


def test_hooks_of_tensors_can_be_looked_at(torch: ModuleType) -> None:
    def run(ns: Any) -> Any:
        x = ns.ones(2, requires_grad=True)
        before = x._backward_hooks is None, x._post_accumulate_grad_hooks is None
        x.register_hook(lambda grad: grad)
        handle = x.register_post_accumulate_grad_hook(lambda tensor: None)
        during = len(x._backward_hooks), len(x._post_accumulate_grad_hooks)
        handle.remove()
        return before, during, len(x._post_accumulate_grad_hooks)

    agree(run, torch)


def test_recurrent_layers_list_their_weights(torch: ModuleType) -> None:
    def run(ns: Any) -> Any:
        layer = ns.nn.LSTM(2, 3, num_layers=2, bidirectional=True, bias=False)
        same = all(
            getattr(layer, name) is weight
            for name, weight in zip(layer._flat_weights_names, layer._flat_weights, strict=True)
        )
        return layer._flat_weights_names, layer._all_weights, same

    agree(run, torch)


def test_operands_of_lists_are_given_by_name(torch: ModuleType) -> None:
    def run(ns: Any) -> Any:
        a = [ns.arange(3.0), ns.ones(2)]
        b = [ns.ones(3), ns.arange(2.0)]
        ns._foreach_mul_(a, scalar=2.0)
        ns._foreach_add_(a, other=b, alpha=0.5)
        ns._foreach_lerp_(a, tensors1=b, weight=0.25)
        ns._foreach_addcmul_(a, tensor1=b, tensor2=b, value=3.0)
        ns._foreach_addcdiv_(a, tensor1=b, tensor2=a, scalars=[1.0, 2.0])
        powers = ns._foreach_pow(a, exponent=2)
        return a, powers, ns._foreach_mul(a, scalars=[1.0, 2.0]), ns._foreach_clamp_min(a, scalar=1)

    agree(run, torch, 1e-6)


def test_modules_are_called_by_what_wraps_them() -> None:
    class Wrapped(Module):
        def forward(self, x: int) -> int:
            return x + 1

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return 10 * self._call_impl(*args, **kwargs)

    assert Wrapped()(1) == 20


def test_private_modules_have_the_names_that_they_import() -> None:
    assert refusals.find_in_index("torch._functorch.vmap", "Tensor") is evergrad.Tensor
    assert callable(refusals.find_in_index("torch._functorch.vmap", "tree_flatten"))


@pytest.mark.parametrize("name", ["matrix_rank", "solve", "lstsq", "eig", "symeig"])
def test_removed_functions_say_so(torch: ModuleType, name: str) -> None:
    for library in (removed, torch):
        with pytest.raises(RuntimeError, match="This function was deprecated"):
            x = (evergrad if library is removed else torch).ones(1, 1)
            getattr(library, name)(*((x, x) if name in ("solve", "lstsq") else (x,)))


@pytest.mark.parametrize("option", ["foreach", "differentiable"])
def test_fused_optimizers_take_no_second_form(torch: ModuleType, option: str) -> None:
    for library in (evergrad, torch):
        weight = library.nn.Parameter(library.ones(2))
        with pytest.raises(RuntimeError, match="`fused`"):
            library.optim.Adam([weight], fused=True, **{option: True})


def test_a_parameter_given_twice_warns(torch: ModuleType) -> None:
    for library in (evergrad, torch):
        weight = library.nn.Parameter(library.ones(2))
        with pytest.warns(UserWarning, match="duplicate parameters"):
            library.optim.SGD([weight, weight], lr=0.1)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_limits_of_types(torch: ModuleType, name: str) -> None:
    ours, theirs = (library.finfo(getattr(library, name)) for library in (evergrad, torch))
    assert repr(ours) == repr(theirs)
    assert ours.resolution == theirs.resolution


def test_differences_of_masks_are_refused(torch: ModuleType) -> None:
    for library in (evergrad, torch):
        mask = library.ones(2, dtype=library.bool)
        with pytest.raises(RuntimeError, match="with two bool tensors is not supported"):
            mask - mask
        with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
            1 - mask


def test_methods_have_public_names_inside_a_mode(torch: ModuleType) -> None:
    def run(ns: ModuleType) -> list[str]:
        overrides = importlib.import_module(f"{ns.__name__}.overrides")
        seen: list[str] = []

        class Names(overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen.append(overrides.resolve_name(func))
                return func(*args, **(kwargs or {}))

        x = ns.ones(2)
        with Names():
            (x + 1).sum()
            x.add_(1)
            x[0]
            x.reshape(1, 2)
            x @ x
        return seen

    assert run(evergrad) == run(torch)
