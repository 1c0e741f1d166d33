"""Containers and lazy modules behave like lists, dictionaries and the modules they become."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from types import ModuleType
from typing import Any

import pytest

import evergrad
from evergrad import nn
from twins import agree, refuse


def test_sequential_is_a_sequence(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        a, b, c = ns.nn.ReLU(), ns.nn.Tanh(), ns.nn.Sigmoid()
        m = ns.nn.Sequential(a, b)
        seen = [len(m), m[0] is a, m[-1] is b, repr(m[0:1])]
        m.append(c)
        m.insert(1, ns.nn.GELU())
        m.extend([ns.nn.SiLU()])
        seen.append(repr(m))
        m[0] = ns.nn.Softplus()
        del m[1]
        seen.append(repr(m))
        seen.append(repr(m.pop(-1)))
        m += ns.nn.Sequential(ns.nn.ELU())
        seen += [repr(m), repr(m + ns.nn.Sequential(a)), repr(ns.nn.Sequential(a) * 2)]
        seen.append(repr(2 * ns.nn.Sequential(a)))
        del m[0:2]
        seen += [repr(m), [type(x).__name__ for x in m]]
        return seen

    agree(program, torch)


def test_sequential_with_names(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Sequential(OrderedDict(first=ns.nn.Linear(2, 2), second=ns.nn.ReLU()))
        m.append(ns.nn.Tanh())
        return (
            repr(m),
            m.first is m[0],
            [n for n, _ in m.named_parameters()],
            m(ns.ones(1, 2)).shape[1],
        )

    agree(program, torch)
    for act in (
        lambda ns: ns.nn.Sequential(ns.nn.ReLU())[3],
        lambda ns: ns.nn.Sequential(ns.nn.ReLU()).insert(9, ns.nn.ReLU()),
        lambda ns: ns.nn.Sequential(ns.nn.ReLU()) * 0,
        lambda ns: ns.nn.Sequential(ns.nn.ReLU()) * 1.5,
        lambda ns: ns.nn.Sequential(ns.nn.ReLU()) + 3,
    ):
        refuse(act, torch)


def test_module_list(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.ModuleList([ns.nn.Linear(2, 2) for _ in range(3)])
        seen = [repr(m), len(m), [n for n, _ in m.named_parameters()]]
        m.insert(1, ns.nn.ReLU())
        m[0] = ns.nn.Tanh()
        m += [ns.nn.GELU()]
        m.extend(x for x in [ns.nn.ELU(), ns.nn.ELU()])
        seen += [repr(m), repr(m[1:3]), repr(m.pop(-1)), repr(m + [ns.nn.SiLU()])]
        del m[0]
        del m[1:3]
        seen += [repr(m), list(m.state_dict()), repr(ns.nn.ModuleList())]
        return seen

    agree(program, torch)
    refuse(lambda ns: ns.nn.ModuleList([ns.nn.ReLU()])[4], torch)
    refuse(lambda ns: ns.nn.ModuleList([3]), torch)
    refuse(lambda ns: ns.nn.ModuleList([ns.nn.ReLU()])(ns.ones(1)), torch)


def test_module_dict(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.ModuleDict({"a": ns.nn.Linear(1, 1), "b": ns.nn.ReLU()})
        m["c"] = ns.nn.Tanh()
        m.update([("d", ns.nn.ELU()), ("a", ns.nn.GELU())])
        seen = [repr(m), list(m), list(m.keys()), len(m), "a" in m, repr(m.pop("b"))]
        del m["c"]
        seen += [[(k, repr(v)) for k, v in m.items()], [repr(v) for v in m.values()]]
        m.clear()
        return [*seen, repr(m)]

    agree(program, torch)
    refuse(lambda ns: ns.nn.ModuleDict({"a": 3}), torch)
    refuse(lambda ns: ns.nn.ModuleDict()["a"], torch)
    refuse(lambda ns: ns.nn.ModuleDict({"a.b": ns.nn.ReLU()}), torch)


def test_parameter_list(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.ParameterList([ns.nn.Parameter(ns.ones(2)), ns.ones(3), "text"])
        m.append(ns.zeros(1))
        m[0] = ns.ones(4)
        m += [ns.ones(1, 2)]
        return (
            len(m), [n for n, _ in m.named_parameters()], list(m.state_dict()),
            m[1].requires_grad, m[-1], [type(x).__name__ for x in m], len(m[1:3]),
        )  # fmt: skip

    agree(program, torch)
    refuse(lambda ns: ns.nn.ParameterList([ns.ones(1)])[3], torch)
    refuse(lambda ns: ns.nn.ParameterList([ns.ones(1)])(1), torch)


def test_parameter_dict(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.ParameterDict({"a": ns.ones(2), "b": ns.nn.Parameter(ns.ones(1))})
        m["c"] = ns.zeros(2, 2)
        m.update({"d": ns.ones(1)})
        seen = [
            list(m.keys()), [n for n, _ in m.named_parameters()], len(m), "a" in m, m.pop("b"),
            m.get("zz"), m.get("zz", 4), m.setdefault("e", ns.ones(1)), m["c"].requires_grad,
            [k for k, _ in m.items()], len(list(m.values())), sorted(m.state_dict()),
        ]  # fmt: skip
        del m["a"]
        m.clear()
        return [*seen, len(m)]

    agree(program, torch)
    refuse(lambda ns: ns.nn.ParameterDict()["a"], torch)


def test_text_of_parameter_containers(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        items = [ns.nn.Parameter(ns.ones(2, 3)), "text"]
        both = ns.nn.ParameterList(items), ns.nn.ParameterDict(dict(zip("ab", items, strict=True)))
        return [repr(m).replace("torch.", "evergrad.") for m in both]

    agree(program, torch)


# -- lazy modules -------------------------------------------------------------------------------

LAZY = [
    ("LazyLinear", (4,), (2, 3)),
    ("LazyConv1d", (4, 3), (2, 3, 5)),
    ("LazyConv2d", (4, 3, 1, 1), (2, 3, 5, 5)),
    ("LazyConv3d", (4, 2), (1, 3, 3, 3, 3)),
    ("LazyConvTranspose1d", (4, 3), (2, 3, 5)),
    ("LazyConvTranspose2d", (4, 3, 2, 1, 1), (2, 3, 5, 5)),
    ("LazyConvTranspose3d", (4, 2), (1, 3, 3, 3, 3)),
    ("LazyBatchNorm1d", (), (4, 3)),
    ("LazyBatchNorm2d", (), (4, 3, 2, 2)),
    ("LazyBatchNorm3d", (), (4, 3, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), (4, 3, 5)),
    ("LazyInstanceNorm2d", (), (4, 3, 2, 2)),
    ("LazyInstanceNorm3d", (), (4, 3, 2, 2, 2)),
]


@pytest.mark.parametrize(("name", "given", "shape"), LAZY, ids=[n for n, _, _ in LAZY])
def test_lazy_modules_become_ordinary_ones(
    name: str, given: Any, shape: Any, torch: ModuleType
) -> None:
    def program(ns: Any) -> Any:
        ns.manual_seed(0)
        m = getattr(ns.nn, name)(*given)
        before = repr(m), list(m.state_dict()), m.has_uninitialized_params()
        x = ns.arange(float(int(ns.ones(shape).numel()))).reshape(shape) / 50
        y = m(x)
        return before, y, repr(m), type(m).__name__, dict(m.state_dict())

    agree(program, torch, 1e-5)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_modules_load_states(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        full = ns.nn.LazyLinear(2)
        full(ns.ones(1, 3))
        lazy = ns.nn.Sequential(ns.nn.LazyLinear(2))
        lazy.load_state_dict({"0.weight": full.weight.detach(), "0.bias": full.bias.detach()})
        same = bool((lazy[0].weight == full.weight).all())
        lazy(ns.ones(1, 3))
        other = ns.nn.LazyLinear(2)
        other.load_state_dict(ns.nn.LazyLinear(2).state_dict())
        return same, repr(lazy), other.has_uninitialized_params()

    agree(program, torch)


def test_lazy_modules_can_be_copied_and_converted() -> None:
    lazy = nn.LazyLinear(2)
    for copied in (copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        assert copied.has_uninitialized_params()
        assert copied(evergrad.ones(1, 3)).shape == (1, 2)
    assert repr(lazy.weight) == "<UninitializedParameter>"
    wide = nn.LazyLinear(2).double()
    assert wide(evergrad.ones(1, 3, dtype=evergrad.float64)).dtype is evergrad.float64
