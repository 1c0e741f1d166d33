"""What all modules share: attributes, registration, walking the tree, conversion, calling."""

from __future__ import annotations

import copy
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad import nn
from twins import agree, refuse


def small(ns: Any) -> Any:
    """Two layers, a buffer and a shared weight, of either library."""
    ns.manual_seed(0)
    layer = ns.nn.Linear(3, 3)
    model = ns.nn.Sequential(layer, ns.nn.BatchNorm1d(3), ns.nn.Sequential(layer, ns.nn.Tanh()))
    model.register_buffer("scratch", ns.ones(2), persistent=False)
    return model


# -- attributes and registration ----------------------------------------------------------------


def test_attributes_go_where_they_belong(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Module()
        m.weight = ns.nn.Parameter(ns.ones(2))
        m.child = ns.nn.Linear(1, 1)
        m.table = ns.nn.Buffer(ns.zeros(3))
        m.hidden = ns.nn.Buffer(ns.zeros(3), persistent=False)
        m.number = 5
        m.plain = ns.ones(1)
        return [list(t) for t in (m._parameters, m._modules, m._buffers, m.state_dict())]

    agree(program, torch)


def test_a_name_has_one_meaning_at_a_time(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Module()
        seen = []
        for value in (ns.nn.Linear(1, 1), ns.nn.Parameter(ns.ones(1)), None):
            m.thing = value
            seen.append([list(m._parameters), list(m._modules), list(m._buffers)])
        del m.thing
        return seen, hasattr(m, "thing")

    agree(program, torch)


def test_none_keeps_the_place(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Linear(2, 2)
        m.bias = None
        m.register_buffer("b", None)
        m.add_module("c", None)
        return list(m.state_dict()), m.bias, m.b, m.c, len(list(m.modules()))

    agree(program, torch)


@pytest.mark.parametrize(
    "act",
    [
        lambda ns, m: setattr(m, "weight", 3),
        lambda ns, m: setattr(m, "weight", ns.ones(3)),
        lambda ns, m: setattr(m, "child", 3),
        lambda ns, m: setattr(m, "buffer", "x"),
        lambda ns, m: m.register_parameter("a.b", None),
        lambda ns, m: m.register_parameter("", None),
        lambda ns, m: m.register_parameter(3, None),
        lambda ns, m: m.register_parameter("forward", None),
        lambda ns, m: m.register_parameter("p", ns.ones(1)),
        lambda ns, m: m.register_parameter("p", ns.nn.Parameter(ns.ones(1)) * 2),
        lambda ns, m: m.register_buffer("a.b", None),
        lambda ns, m: m.register_buffer("", None),
        lambda ns, m: m.register_buffer(3, None),
        lambda ns, m: m.register_buffer("weight", None),
        lambda ns, m: m.register_buffer("b", 3),
        lambda ns, m: m.add_module("a.b", None),
        lambda ns, m: m.add_module("", None),
        lambda ns, m: m.add_module(3, ns.nn.Linear(1, 1)),
        lambda ns, m: m.add_module("weight", None),
        lambda ns, m: m.add_module("x", 3),
        lambda ns, m: m.missing,
        lambda ns, m: delattr(m, "missing"),
        lambda ns, m: m.get_submodule("child.nothing"),
        lambda ns, m: m.get_submodule("weight"),
        lambda ns, m: m.get_parameter("child.nothing"),
        lambda ns, m: m.get_parameter("buffer"),
        lambda ns, m: m.get_buffer("weight"),
        lambda ns, m: m.set_submodule("", m),
        lambda ns, m: m.set_submodule("weight", ns.nn.Identity()),
        lambda ns, m: m.set_submodule("other", ns.nn.Identity(), strict=True),
        lambda ns, m: m.set_submodule("child", 3),
        lambda ns, m: m.train("yes"),
        lambda ns, m: m.to(ns.int64),
        lambda ns, m: ns.nn.Module()(1),
        lambda ns, m: ns.nn.Sequential(3),
        lambda ns, m: setattr(m, "weight", ns.nn.Identity()),
        lambda ns, m: setattr(m, "weight", ns.nn.Buffer(ns.ones(2))),
    ],
)
def test_mistakes_are_refused(act: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Module()
        m.weight = ns.nn.Parameter(ns.ones(2))
        m.child = ns.nn.Linear(1, 1)
        m.register_buffer("buffer", ns.ones(2))
        return act(ns, m)

    refuse(program, torch)


def test_before_init_nothing_can_be_assigned(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Early(ns.nn.Module):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                self.weight = ns.nn.Parameter(ns.ones(1))

        return Early()

    refuse(program, torch)


# -- walking ------------------------------------------------------------------------------------


def test_names_of_everything_below(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = small(ns)
        return (
            [n for n, _ in m.named_parameters()],
            [n for n, _ in m.named_parameters(remove_duplicate=False)],
            [n for n, _ in m.named_parameters(prefix="net")],
            [n for n, _ in m.named_parameters(recurse=False)],
            [n for n, _ in m.named_buffers()],
            [n for n, _ in m.named_modules()],
            [n for n, _ in m.named_modules(remove_duplicate=False)],
            [n for n, _ in m.named_modules(prefix="net")],
            [n for n, _ in m.named_children()],
            [len(list(f())) for f in (m.parameters, m.buffers, m.modules, m.children)],
            len(list(m.modules(remove_duplicate=False))),
            repr(m.get_submodule("2.1")),
            m.get_parameter("2.0.weight").shape[0],
            m.get_buffer("1.running_mean").shape[0],
        )

    agree(program, torch)


def test_apply_visits_children_first(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        seen: list[str] = []
        m = small(ns)
        assert m.apply(lambda child: seen.append(type(child).__name__)) is m
        return seen

    agree(program, torch)


def test_set_submodule(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = small(ns)
        m.set_submodule("2.1", ns.nn.ReLU())
        m.set_submodule("2.9", ns.nn.GELU())
        return repr(m)

    agree(program, torch)


def test_dir_shows_parameters_and_children() -> None:
    assert {"weight", "bias", "forward"} <= set(dir(nn.Linear(1, 1)))


# -- modes and conversion -----------------------------------------------------------------------


def test_train_and_eval_reach_everything() -> None:
    m = small(evergrad)
    m.eval()
    assert not any(child.training for child in m.modules())
    m.train()
    assert all(child.training for child in m.modules())


def test_requires_grad_and_zero_grad(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Linear(2, 1)
        m(ns.ones(3, 2)).sum().backward()
        m.zero_grad(set_to_none=False)
        zeros = m.weight.grad.clone()
        m.zero_grad()
        m.requires_grad_(False)
        return zeros, m.weight.grad, m(ns.ones(1, 2)).requires_grad

    agree(program, torch)


@pytest.mark.parametrize("convert", ["double", "half", "bfloat16", "float"])
def test_conversion_keeps_identity_and_integers(convert: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = small(ns)
        m(ns.ones(4, 3)).sum().backward()
        before = [id(p) for p in m.parameters()]
        assert getattr(m, convert)() is m
        assert before == [id(p) for p in m.parameters()]
        kinds = {name: str(t.dtype).partition(".")[2] for name, t in m.state_dict().items()}
        return kinds, [str(p.grad.dtype).partition(".")[2] for p in m.parameters()]

    agree(program, torch)


@pytest.mark.parametrize(
    "to",
    [
        lambda ns: {"args": (ns.float64,)},
        lambda ns: {"args": ("cpu",)},
        lambda ns: {"args": ("cpu", ns.float64)},
        lambda ns: {"args": (ns.ones(1, dtype=ns.float16),)},
        lambda ns: {"dtype": ns.float64},
        lambda ns: {"device": "cpu", "dtype": ns.float64},
    ],
)
def test_forms_of_to(to: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        given = to(ns)
        m = ns.nn.Linear(2, 2).to(*given.pop("args", ()), **given)
        return str(m.weight.dtype).partition(".")[2]

    agree(program, torch)


def test_to_empty_and_type() -> None:
    m = nn.Linear(2, 3)
    assert m.to_empty(device="cpu").weight.shape == (3, 2)
    assert m.type(evergrad.float64).weight.dtype is evergrad.float64


# -- copies -------------------------------------------------------------------------------------


def test_deepcopy_keeps_sharing_and_gradients() -> None:
    m = small(evergrad)
    m(evergrad.randn(4, 3)).sum().backward()
    copied = copy.deepcopy(m)
    assert copied[0] is copied[2][0]
    assert copied[0].weight is not m[0].weight
    assert list(dict(copied.named_buffers())) == list(dict(m.named_buffers()))
    copied[0].weight.data.zero_()
    assert m[0].weight.abs().sum() > 0


def test_deepcopied_hooks_see_the_copy(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Linear(1, 1)
        seen: list[Any] = []
        m.register_forward_hook(lambda module, args, out: seen.append(module))
        m.register_load_state_dict_pre_hook(lambda module, *rest: seen.append(module))
        copied = copy.deepcopy(m)
        copied(ns.ones(1, 1))
        copied.load_state_dict(m.state_dict())
        return [module is copied for module in seen]

    agree(program, torch)


# -- vectors and clipping -----------------------------------------------------------------------


def with_gradients(ns: Any) -> Any:
    m = ns.nn.Sequential(ns.nn.Linear(2, 3), ns.nn.Linear(3, 1, bias=False), ns.nn.Linear(1, 1))
    for i, p in enumerate(list(m.parameters())[:-1]):
        p.grad = (ns.arange(p.numel(), dtype=ns.float32) - i).reshape(p.shape)
    return m


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf"), 3.5, "inf"])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_grad_norm(norm_type: Any, max_norm: float, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = with_gradients(ns)
        total = ns.nn.utils.clip_grad_norm_(m.parameters(), max_norm, norm_type)
        return total, [p.grad for p in m.parameters() if p.grad is not None]

    agree(program, torch, 1e-6)


def test_clip_grad_norm_without_gradients_and_not_finite(torch: ModuleType) -> None:
    agree(lambda ns: ns.nn.utils.clip_grad_norm_(ns.nn.Linear(1, 1).parameters(), 1.0), torch)
    agree(lambda ns: ns.nn.utils.clip_grad_norm_(with_gradients(ns)[0].weight, 1.0), torch, 1e-6)

    def not_finite(ns: Any) -> Any:
        m = with_gradients(ns)
        m[0].weight.grad[0] = float("nan")
        return ns.nn.utils.clip_grad_norm_(m.parameters(), 1.0, error_if_nonfinite=True)

    refuse(not_finite, torch, "non-finite")


def test_clip_grad_value(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = with_gradients(ns)
        ns.nn.utils.clip_grad_value_(m.parameters(), 1.5)
        return [p.grad for p in m.parameters() if p.grad is not None]

    agree(program, torch)


def test_total_norm(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = with_gradients(ns)
        grads = [p.grad for p in m.parameters() if p.grad is not None]
        total = ns.nn.utils.get_total_norm(grads)
        ns.nn.utils.clip_grads_with_norm_(m.parameters(), 0.1, total)
        return total, grads

    agree(program, torch, 1e-6)


def test_parameters_as_one_vector(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Linear(2, 3)
        vector = ns.nn.utils.parameters_to_vector(m.parameters())
        ns.nn.utils.vector_to_parameters(ns.arange(9.0), m.parameters())
        (m(ns.ones(1, 2)) ** 2).sum().backward()
        return vector.shape[0], vector.requires_grad, m.weight, m.bias, m.weight.grad

    agree(program, torch)


# -- functional calls ---------------------------------------------------------------------------


def test_functional_call_leaves_the_module_alone(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(1)
        m = ns.nn.Sequential(ns.nn.Linear(3, 3), ns.nn.BatchNorm1d(3))
        given = {n: p.detach() * 2 for n, p in m.named_parameters()}
        before = {n: v.clone() for n, v in m.state_dict().items()}
        result = ns.func.functional_call(m, given, (ns.arange(12.0).reshape(4, 3).sin(),))
        same = [bool((before[n] == v).all()) for n, v in m.named_parameters()]
        return result, same

    agree(program, torch, 1e-6)


def test_functional_call_is_differentiable(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(1)
        m = ns.nn.Linear(2, 1)
        params = {n: p.detach() for n, p in m.named_parameters()}

        def loss(given: Any) -> Any:
            return ns.func.functional_call(m, given, ns.ones(3, 2)).pow(2).sum()

        return ns.func.grad(loss)(params)

    agree(program, torch, 1e-6)


def test_ensembles(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(2)
        models = [
            ns.nn.Sequential(ns.nn.Linear(3, 4), ns.nn.LayerNorm(4), ns.nn.Linear(4, 2))
            for _ in range(3)
        ]  # fmt: skip
        params, buffers = ns.func.stack_module_state(models)

        def call(p: Any, b: Any, x: Any) -> Any:
            return ns.func.functional_call(models[0], (p, b), (x,))

        x = ns.arange(15.0).reshape(5, 3) / 10
        together = ns.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
        apart = ns.stack([m(x) for m in models])
        assert bool((together - apart).abs().max() < 1e-5)
        return together, {n: tuple(p.shape) for n, p in params.items()}

    agree(program, torch, 1e-5)


def test_gradients_per_sample(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(3)
        m = ns.nn.Sequential(ns.nn.Linear(3, 4), ns.nn.Tanh(), ns.nn.Linear(4, 1))
        params = {n: p.detach() for n, p in m.named_parameters()}

        def loss(given: Any, x: Any) -> Any:
            return ns.func.functional_call(m, given, (x,)).sum()

        x = ns.arange(6.0).reshape(2, 3)
        return ns.vmap(ns.func.grad(loss), in_dims=(None, 0))(params, x)

    agree(program, torch, 1e-5)


# -- parameters ---------------------------------------------------------------------------------


def test_parameters_are_leaves_that_keep_their_class() -> None:
    p = nn.Parameter(evergrad.ones(2) * 2)
    assert p.is_leaf and p.requires_grad and isinstance(p, nn.Parameter)
    assert not nn.Parameter(evergrad.ones(2), requires_grad=False).requires_grad
    assert type(p * 2) is evergrad.Tensor
    assert repr(p).startswith("Parameter containing:\ntensor(")
    copied = copy.deepcopy(p)
    assert isinstance(copied, nn.Parameter) and copied.data_ptr() != p.data_ptr()
    shared = evergrad.ones(2)
    nn.Parameter(shared).data.fill_(5)
    np.testing.assert_array_equal(shared.numpy(), [5, 5])
