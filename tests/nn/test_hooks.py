"""Hooks on modules: their order, what they see, what they may change."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad import nn
from evergrad.nn import hooks
from twins import agree, refuse


def double(ns: Any) -> Any:
    """A module of one weight that multiplies by it, and takes a keyword."""

    class Double(ns.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = ns.nn.Parameter(ns.tensor(2.0))

        def forward(self, x: Any, shift: float = 0.0) -> Any:
            if shift == "fail":
                raise ValueError("as asked")
            return x * self.weight + shift

    return Double()


def test_order_of_hooks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, seen = double(ns), []
        for name in "ab":
            m.register_forward_pre_hook(lambda m, args, n=name: seen.append("pre " + n))
            m.register_forward_hook(lambda m, args, out, n=name: seen.append("post " + n))
        m.register_forward_pre_hook(lambda m, args: seen.append("pre first"), prepend=True)
        m.register_forward_hook(lambda m, args, out: seen.append("post first"), prepend=True)
        m(ns.ones(1))
        return seen

    agree(program, torch)


def test_hooks_change_arguments_and_results(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = double(ns)
        m.register_forward_pre_hook(lambda m, args: args[0] + 1)
        m.register_forward_pre_hook(lambda m, args: (args[0] * 10,))
        m.register_forward_pre_hook(
            lambda m, args, kwargs: (args, {"shift": kwargs["shift"] + 0.5}), with_kwargs=True
        )
        m.register_forward_hook(lambda m, args, out: out + 1000)
        m.register_forward_hook(
            lambda m, args, kwargs, out: out + kwargs["shift"], with_kwargs=True
        )
        return m(ns.ones(1), shift=3)

    agree(program, torch)


def test_a_pre_hook_with_keywords_returns_both(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = double(ns)
        m.register_forward_pre_hook(lambda m, args, kwargs: args, with_kwargs=True)
        return m(ns.ones(1))

    refuse(program, torch, "tuple of")


def test_hooks_can_be_removed(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, seen = double(ns), []
        handle = m.register_forward_hook(lambda *given: seen.append("x"))
        m(ns.ones(1))
        handle.remove()
        m(ns.ones(1))
        with m.register_forward_pre_hook(lambda *given: seen.append("y")):
            m(ns.ones(1))
        m(ns.ones(1))
        return seen

    agree(program, torch)


def test_always_call(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, seen = double(ns), []
        m.register_forward_hook(lambda m, args, out: seen.append("plain"))
        m.register_forward_hook(lambda m, args, out: seen.append(("always", out)), always_call=True)
        m.register_forward_hook(
            lambda m, args, kwargs, out: seen.append(("keywords", out)),
            always_call=True,
            with_kwargs=True,
        )
        with pytest.raises(ValueError, match="as asked"):
            m(ns.ones(1), shift="fail")
        return seen

    agree(program, torch)


def test_a_failing_hook_among_those_always_called() -> None:
    m = double(evergrad)

    def fail(m: Any, args: Any, out: Any) -> None:
        raise KeyError("in the hook")

    m.register_forward_hook(fail, always_call=True)
    with (
        pytest.warns(UserWarning, match="silenced"),
        pytest.raises(ValueError, match="as asked"),
    ):
        m(evergrad.ones(1), shift="fail")


def test_backward_hooks_see_gradients(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, seen = ns.nn.Linear(2, 1), []
        with ns.no_grad():
            m.weight.fill_(3)
        m.register_full_backward_pre_hook(lambda m, out: seen.append(("pre", out)))
        m.register_full_backward_hook(lambda m, inputs, out: seen.append(("post", inputs, out)))
        x = ns.ones(1, 2, requires_grad=True)
        (m(x) * 5).sum().backward()
        return seen, x.grad, m.weight.grad

    agree(program, torch)


def test_backward_hooks_change_gradients(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = double(ns)
        m.register_full_backward_pre_hook(lambda m, out: (out[0] * 10,))
        m.register_full_backward_hook(lambda m, inputs, out: (inputs[0] + 1,))
        m.register_full_backward_hook(lambda m, inputs, out: (inputs[0] * 2,), prepend=True)
        x = ns.ones(2, requires_grad=True)
        m(x).sum().backward()
        return x.grad, m.weight.grad

    agree(program, torch)


def test_backward_hooks_with_several_arguments_and_results(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Pair(ns.nn.Module):  # type: ignore[misc,name-defined]
            def forward(self, x: Any, n: int, y: Any, z: Any) -> Any:
                return x * y, n, y * z

        m, seen = Pair(), []
        m.register_full_backward_hook(lambda m, inputs, out: seen.append((inputs, out)))
        x, z = ns.tensor([2.0], requires_grad=True), ns.tensor([5.0], requires_grad=True)
        first, _, second = m(x, 3, ns.tensor([4.0]), z)
        (first * 2 + second).sum().backward()
        return seen, x.grad, z.grad

    agree(program, torch)


def test_backward_hooks_without_input_gradients(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, seen = double(ns), []
        m.register_full_backward_hook(lambda m, inputs, out: seen.append((inputs, out)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            m(ns.ones(2)).sum().backward()
        return seen, m.weight.grad

    agree(program, torch)


def test_backward_hooks_return_as_many_gradients_as_they_got(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = double(ns)
        m.register_full_backward_hook(lambda m, inputs, out: (inputs[0], inputs[0]))
        m(ns.ones(2, requires_grad=True)).sum().backward()

    refuse(program, torch, "invalid number of grad_input")


def test_hooks_on_every_module() -> None:
    seen: list[str] = []
    with (
        hooks.register_module_forward_pre_hook(lambda m, args: seen.append("pre")),
        hooks.register_module_forward_hook(lambda m, args, out: seen.append("post")),
        hooks.register_module_full_backward_pre_hook(lambda m, out: seen.append("back pre")),
        hooks.register_module_full_backward_hook(lambda m, i, out: seen.append("back")),
    ):
        nn.Tanh()(evergrad.ones(1, requires_grad=True)).sum().backward()
    nn.Tanh()(evergrad.ones(1))
    assert seen == ["pre", "post", "back pre", "back"]


def test_hooks_around_saving_and_loading(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, seen = ns.nn.Sequential(ns.nn.Linear(1, 1)), []
        m[0].register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("save", prefix)))
        m.register_state_dict_post_hook(lambda m, state, prefix, meta: seen.append(list(state)))
        m[0].register_load_state_dict_pre_hook(
            lambda m, state, prefix, *rest: state.setdefault(prefix + "bias", ns.ones(1))
        )
        m.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
        state = m.state_dict()
        del state["0.weight"], state["0.bias"]
        result = m.load_state_dict(state)
        return seen, str(result), m[0].bias

    agree(program, torch)
