"""``autograd.functional``: products and matrices of derivatives, in PyTorch's forms."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from twins import agree, fixed, leaf, refuse

X = [0.3, -0.8]
Y = [1.2, 0.4, -0.5]


def pair(ns: Any) -> Any:
    return fixed(ns, X), fixed(ns, Y)


def one_of_one(x: Any) -> Any:
    return x.sin() * x.sum()


def one_of_two(x: Any, y: Any) -> Any:
    return x.exp() * (y * y).sum()


def two_of_two(x: Any, y: Any) -> Any:
    return x * y.sum(), (x.sum() * y).sin()


def number(x: Any) -> Any:
    return (x**3).sum() * x[0]


def number_of_two(x: Any, y: Any) -> Any:
    return (x.sum() * y).sin().sum() + (x**2).sum()


options = pytest.mark.parametrize("create_graph", [False, True])


@options
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("case", ["one of one", "one of two", "two of two"])
def test_jacobian(case: str, strategy: str, create_graph: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        jacobian = ns.autograd.functional.jacobian
        function, inputs = {
            "one of one": (one_of_one, fixed(ns, X)),
            "one of two": (one_of_two, pair(ns)),
            "two of two": (two_of_two, pair(ns)),
        }[case]
        vectorize = strategy == "forward-mode"
        return jacobian(
            function, inputs, strategy=strategy, vectorize=vectorize,
            create_graph=create_graph and not vectorize,
        )  # fmt: skip

    agree(program, torch)


@pytest.mark.parametrize("case", ["one", "two"])
@pytest.mark.parametrize("outer", ["reverse-mode", "forward-mode"])
def test_hessian(case: str, outer: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        function, inputs = {"one": (number, fixed(ns, X)), "two": (number_of_two, pair(ns))}[case]
        return ns.autograd.functional.hessian(
            function, inputs, outer_jacobian_strategy=outer, vectorize=outer == "forward-mode"
        )

    agree(program, torch)


PRODUCTS = {
    "vjp": lambda ns, f: f.vjp(one_of_one, fixed(ns, X), fixed(ns, [2.0, 3.0])),
    "vjp of two": lambda ns, f: f.vjp(
        two_of_two, pair(ns), (fixed(ns, [2.0, 3.0]), fixed(ns, [1.0, 4.0, 5.0]))
    ),
    "vjp of a number": lambda ns, f: f.vjp(number, fixed(ns, X)),
    "jvp": lambda ns, f: f.jvp(one_of_one, fixed(ns, X), fixed(ns, [2.0, 3.0])),
    "jvp of two": lambda ns, f: f.jvp(
        two_of_two, pair(ns), (fixed(ns, [2.0, 3.0]), fixed(ns, [1.0, 4.0, 5.0]))
    ),
    "jvp of a number": lambda ns, f: f.jvp(lambda x: x * fixed(ns, Y), fixed(ns, 2.0)),
    "vhp": lambda ns, f: f.vhp(number, fixed(ns, X), fixed(ns, [2.0, 3.0])),
    "vhp of two": lambda ns, f: f.vhp(
        number_of_two, pair(ns), (fixed(ns, [2.0, 3.0]), fixed(ns, [1.0, 4.0, 5.0]))
    ),
    "hvp": lambda ns, f: f.hvp(number, fixed(ns, X), fixed(ns, [2.0, 3.0])),
    "hvp of two": lambda ns, f: f.hvp(
        number_of_two, pair(ns), (fixed(ns, [2.0, 3.0]), fixed(ns, [1.0, 4.0, 5.0]))
    ),
    "hvp of a linear function": lambda ns, f: f.hvp(
        lambda x: (x * 2).sum(), fixed(ns, X), fixed(ns, [2.0, 3.0])
    ),
    "independent": lambda ns, f: f.vjp(lambda x, y: x * 2, pair(ns), fixed(ns, [2.0, 3.0])),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, torch: ModuleType) -> None:
    agree(lambda ns: PRODUCTS[name](ns, ns.autograd.functional), torch)


@pytest.mark.parametrize("name", ["vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"])
def test_the_result_can_be_differentiated(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, X)
        functional = getattr(ns.autograd.functional, name)
        function = one_of_one if name in ("vjp", "jvp", "jacobian") else number
        if name in ("jacobian", "hessian"):
            found = functional(function, x, create_graph=True)
        else:
            value, found = functional(function, x, fixed(ns, [2.0, 3.0]), create_graph=True)
            found = found.sum() + value.sum()
        return ns.autograd.grad((found * found).sum(), x)

    agree(program, torch)


@pytest.mark.parametrize("name", ["vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"])
def test_without_a_graph_nothing_is_recorded(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, X)
        functional = getattr(ns.autograd.functional, name)
        function = one_of_one if name in ("vjp", "jvp", "jacobian") else number
        arguments = () if name in ("jacobian", "hessian") else (fixed(ns, [2.0, 3.0]),)
        found = functional(function, x, *arguments)
        found = found if isinstance(found, tuple) else (found,)
        return [t.requires_grad for t in found], x.grad

    agree(program, torch)


WRONG = {
    "vjp needs a vector": lambda ns, f: f.vjp(one_of_one, fixed(ns, X)),
    "jvp needs a vector": lambda ns, f: f.jvp(one_of_one, fixed(ns, X)),
    "hessian needs a number": lambda ns, f: f.hessian(one_of_one, fixed(ns, X)),
    "vhp needs a number": lambda ns, f: f.vhp(one_of_one, fixed(ns, X), fixed(ns, X)),
    "vector of another shape": lambda ns, f: f.vjp(one_of_one, fixed(ns, X), fixed(ns, Y)),
    "tangent of another shape": lambda ns, f: f.jvp(one_of_one, fixed(ns, X), fixed(ns, Y)),
    "strict jacobian": lambda ns, f: f.jacobian(lambda x, y: x * 2, pair(ns), strict=True),
    "strict vjp": lambda ns, f: f.vjp(
        lambda x, y: x * 2, pair(ns), fixed(ns, [1.0, 1.0]), strict=True
    ),
    "strict hessian": lambda ns, f: f.hessian(lambda x: (x * 2).sum(), fixed(ns, X), strict=True),
    "strict hvp": lambda ns, f: f.hvp(
        lambda x: (x * 2).sum(), fixed(ns, X), fixed(ns, [1.0, 1.0]), strict=True
    ),
    "strict vhp": lambda ns, f: f.vhp(lambda x, y: (x * x).sum(), pair(ns), pair(ns), strict=True),
    "strict jvp": lambda ns, f: f.jvp(
        lambda x: fixed(ns, Y), fixed(ns, X), fixed(ns, X), strict=True
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_pytorch_refuses_is_refused(name: str, torch: ModuleType) -> None:
    refuse(lambda ns: WRONG[name](ns, ns.autograd.functional), torch)


def test_strict_allows_what_depends(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        functional = ns.autograd.functional
        return (
            functional.jacobian(two_of_two, pair(ns), strict=True),
            functional.hessian(number, fixed(ns, X), strict=True),
            functional.hvp(number_of_two, pair(ns), pair(ns), strict=True),
            functional.vjp(one_of_one, fixed(ns, X), fixed(ns, X), strict=True),
        )

    agree(program, torch)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match="sideways"):
        eg.autograd.functional.jacobian(one_of_one, fixed(eg, X), strategy="sideways")
