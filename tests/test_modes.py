"""Recording switched off and on: as context managers, as decorators, in threads."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import pytest

import evergrad as eg
from twins import agree, fixed, leaf

MODES = {
    "no_grad": lambda ns: ns.no_grad(),
    "enable_grad": lambda ns: ns.enable_grad(),
    "set_grad_enabled(False)": lambda ns: ns.set_grad_enabled(False),
    "set_grad_enabled(True)": lambda ns: ns.set_grad_enabled(True),
    "inference_mode": lambda ns: ns.inference_mode(),
    "inference_mode(False)": lambda ns: ns.inference_mode(False),
}
both = pytest.mark.parametrize("outer", MODES)
each = pytest.mark.parametrize("inner", MODES)


def told(ns: Any) -> tuple[bool, bool]:
    return ns.is_grad_enabled(), ns.is_inference_mode_enabled()


@both
@each
def test_nested(outer: str, inner: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        seen = [told(ns)]
        with MODES[outer](ns):
            seen.append(told(ns))
            with MODES[inner](ns):
                seen.append(told(ns))
            seen.append(told(ns))
        return [*seen, told(ns)]

    agree(program, torch)


@both
@each
def test_decorated_functions(outer: str, inner: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        def call(deeper: int) -> list[Any]:
            return [told(ns), *(function(deeper - 1) if deeper else [])]

        function = MODES[inner](ns)(call)
        with MODES[outer](ns):
            seen = function(2)
        return [*seen, told(ns)]

    agree(program, torch)


@pytest.mark.parametrize("name", ["no_grad", "enable_grad", "inference_mode"])
def test_decorators_without_a_call(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        @getattr(ns, name)
        def function(value: int, *, more: int = 0) -> Any:
            """What it does."""
            return told(ns), value + more

        return function(3, more=4), function.__name__, function.__doc__

    agree(program, torch)


@each
def test_exceptions_restore_the_mode(inner: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        with pytest.raises(KeyError), MODES[inner](ns):
            raise KeyError

        @MODES[inner](ns)
        def fails() -> None:
            raise KeyError

        with pytest.raises(KeyError):
            fails()
        return told(ns)

    agree(program, torch)


@each
def test_decorated_generators(inner: str, torch: ModuleType) -> None:
    """The mode holds while the generator runs, and not while it waits."""

    def program(ns: Any) -> Any:
        seen: list[Any] = []

        @MODES[inner](ns)
        def count() -> Any:
            try:
                while True:
                    try:
                        sent = yield told(ns)
                        seen.append((sent, told(ns)))
                        if sent == 3:
                            return "the end"
                    except KeyError:
                        seen.append(("caught", told(ns)))
            finally:
                seen.append(("closing", told(ns)))

        first = count()
        seen += [next(first), told(ns), first.send(1), told(ns), first.throw(KeyError("x"))]
        first.close()
        second = count()
        next(second)
        with pytest.raises(StopIteration) as stop:
            second.send(3)
        return [*seen, stop.value.value, told(ns)]

    agree(program, torch)


def test_set_grad_enabled_as_a_function(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        seen = []
        try:
            ns.set_grad_enabled(False)
            seen.append(told(ns))
            with ns.set_grad_enabled(True):
                ns.set_grad_enabled(False)
                seen.append(told(ns))
            seen.append(told(ns))
        finally:
            ns.set_grad_enabled(True)
        return seen

    agree(program, torch)


def test_one_object_may_be_entered_again() -> None:
    mode = eg.no_grad()
    with mode:
        with mode:
            assert not eg.is_grad_enabled()
        assert not eg.is_grad_enabled()
    assert eg.is_grad_enabled()
    with mode:
        assert not eg.is_grad_enabled()
    assert eg.is_grad_enabled()


@each
def test_what_is_recorded(inner: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        with MODES[inner](ns):
            y = x * 2
            made = fixed(ns, [1.0]).requires_grad_()
        return y.requires_grad, y.is_leaf, made.requires_grad

    agree(program, torch)


def test_part_of_a_computation_as_a_constant(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        with ns.no_grad():
            scale = x.exp()
            with ns.enable_grad():
                inner = x.sin()
        (scale * inner * x).sum().backward()
        return x.grad

    agree(program, torch)


def test_backward_works_without_gradients_on(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = (x * x).sum()
        with ns.no_grad():
            y.backward()
        return x.grad

    agree(program, torch)


def test_gradients_of_gradients_need_no_mode(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, [1.0, 2.0])
        y = (x**3).sum()
        with ns.no_grad():
            (first,) = ns.autograd.grad(y, x, create_graph=True)
        return ns.autograd.grad(first.sum(), x)

    agree(program, torch)


def test_a_mode_holds_in_its_own_thread() -> None:
    seen: list[bool] = []
    with eg.no_grad():
        thread = threading.Thread(target=lambda: seen.append(eg.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


# -- anomaly ------------------------------------------------------------------------------------


def test_anomaly_mode_names_the_op_and_the_line() -> None:
    x = leaf(eg, [-1.0, 4.0])
    with eg.autograd.detect_anomaly():
        assert eg.autograd.is_anomaly_enabled()
        y = x * 3
        root = y.sqrt()
        with pytest.raises(RuntimeError, match="returned nan values") as error:
            root.sum().backward()
    assert "SqrtBackward0" in str(error.value)
    assert "root = y.sqrt()" in str(error.value)
    assert not eg.autograd.is_anomaly_enabled()


def test_anomaly_mode_leaves_sound_gradients_alone() -> None:
    x = leaf(eg, [1.0, 4.0])
    with eg.autograd.detect_anomaly():
        x.sqrt().sum().backward()
    assert x.grad.tolist() == [0.5, 0.25]


def test_anomaly_mode_as_a_function() -> None:
    with eg.autograd.set_detect_anomaly(True):
        assert eg.autograd.is_anomaly_enabled()
        with eg.autograd.set_detect_anomaly(False):
            assert not eg.autograd.is_anomaly_enabled()
    assert not eg.autograd.is_anomaly_enabled()


def test_anomaly_in_a_custom_function() -> None:
    class Broken(eg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * float("nan")

    x = leaf(eg, [1.0])
    with eg.autograd.detect_anomaly():
        y = Broken.apply(x)
        with pytest.raises(RuntimeError, match=r"BrokenBackward.*returned nan") as error:
            y.sum().backward()
    assert "y = Broken.apply(x)" in str(error.value)
