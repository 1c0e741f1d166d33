"""Every overload that PyTorch's stubs state can be called here, by position and by keyword.

What differs is in :mod:`.signature_differences`, with reasons.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import evergrad
from oracle import assert_same
from torch_names import stubs
from torch_names.signature_differences import DIFFERENT
from torch_names.stubs import EMPTY, UNKNOWN, Argument, Overload, Signatures

Parameter = inspect.Parameter
READERS: dict[str, Callable[[ModuleType], Signatures]] = {
    "torch": stubs.functions,
    "Tensor": stubs.methods,
    "nn.functional": stubs.functional,
    "linalg": lambda torch: stubs.schemas(torch, "linalg"),
    "fft": lambda torch: stubs.schemas(torch, "fft"),
    "special": lambda torch: stubs.schemas(torch, "special"),
}
NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}


class Accepted:
    """What a function takes: by name, by position, with which defaults."""

    def __init__(self, function: Any, is_method: bool) -> None:
        given = list(inspect.signature(function).parameters.values())
        by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        by_name = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        self.positions = [p.name for p in given if p.kind in by_position][int(is_method) :]
        self.defaults = {p.name: p.default for p in given if p.kind in by_name}
        self.variadic = any(p.kind is Parameter.VAR_POSITIONAL for p in given)
        self.open = any(p.kind is Parameter.VAR_KEYWORD for p in given)
        further = getattr(function, "keywords", {})
        self.further = {k: v for k, v in further.items() if v in self.defaults}
        self.code = getattr(function, "__code__", None)

    def takes(self, name: str) -> bool:
        if name not in self.defaults and name not in self.further:
            return self.open
        return self._code_takes(name)

    def _code_takes(self, name: str) -> bool:
        """A wrapper shows the signature of what it wraps; its own code must agree."""
        code = self.code
        if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
            return True
        return name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    def has_position(self, place: int, argument: Argument, overload: Overload) -> bool:
        """Whether the argument may be given there. A parameter that has another name in every
        form stands for several, as in ``scatter(dim, index, src)`` of a number."""
        if place >= len(self.positions):
            return self.variadic
        name = self.positions[place]
        return name == argument.name or name not in {a.name for a in overload}


def complaints(function: Any, overload: Overload, is_method: bool) -> Iterator[str]:
    ours = Accepted(function, is_method)
    arguments = [a if a.name != "self" else Argument("input", a.default) for a in overload]
    for place, argument in enumerate(arguments[int(is_method) :]):
        name = argument.name
        if argument.variadic:
            if not ours.variadic:
                yield f"no *{name}"
            continue
        if not ours.takes(name):
            yield f"no {name}="
        elif argument.default is not EMPTY and name in ours.defaults:
            default = ours.defaults[name]
            if argument.default is not UNKNOWN and not same(default, argument.default):
                yield f"{name}={default!r} instead of {argument.default!r}"
        if not argument.by_name_only and not ours.has_position(place, argument, tuple(arguments)):
            yield f"{name} is not at position {place}"


def numpy_complaints(function: Any, overload: Overload, is_method: bool) -> Iterator[str]:
    """PyTorch's native functions take NumPy's names too."""
    ours = Accepted(function, is_method)
    for name in {a.name for a in overload} & NUMPY_NAMES.keys():
        if not ours.takes(NUMPY_NAMES[name]):
            yield f"no {NUMPY_NAMES[name]}="


def same(ours: Any, theirs: Any) -> bool:
    as_tuple = tuple(theirs) if isinstance(theirs, list) else theirs
    return bool(ours == as_tuple)


def differences(torch: ModuleType, label: str, overload: Overload) -> Iterator[str]:
    namespace, _, name = label.rpartition(".")
    function = getattr(owner_of(evergrad, namespace), name)
    yield from complaints(function, overload, namespace == "Tensor")
    if not inspect.isfunction(getattr(owner_of(torch, namespace), name, None)):
        yield from numpy_complaints(function, overload, namespace == "Tensor")


def owner_of(found: Any, namespace: str) -> Any:
    for part in namespace.removeprefix("torch").split("."):
        found = getattr(found, part) if part else found
    return found


@pytest.mark.parametrize("namespace", READERS)
def test_every_overload_can_be_called(namespace: str, torch: ModuleType) -> None:
    owner = owner_of(evergrad, namespace)
    found, compared = [], 0
    for name, overloads in READERS[namespace](torch).items():
        label = f"{namespace}.{name}"
        is_private = name.startswith("_") and not name.startswith("__")
        if is_private or not hasattr(owner, name) or label in DIFFERENT:
            continue
        for overload in overloads:
            compared += 1
            if is_deprecated(name, overload):
                continue
            what = list(differences(torch, label, overload))
            if what:
                shown = ", ".join(a.name for a in overload)
                found.append(f"{label}({shown}): {'; '.join(what)}")
    assert compared > 30
    assert not found, "\n".join(found)


def is_deprecated(name: str, overload: Overload) -> bool:
    """Forms with factors before tensors, which :func:`test_deprecated_forms` calls."""
    factors = {"alpha", "beta", "value"}
    return name.rstrip("_") in DEPRECATED and any(
        a.name in factors and not a.by_name_only for a in overload
    )


def test_reasons_are_needed(torch: ModuleType) -> None:
    """An entry of the table that no longer differs has to go."""
    idle = []
    for label in DIFFERENT:
        namespace, _, name = label.rpartition(".")
        overloads = READERS[namespace](torch)[name]
        if not any(any(differences(torch, label, each)) for each in overloads):
            idle.append(label)
    assert not idle


# -- calls that signatures do not show ----------------------------------------------------------

DEPRECATED = {
    "add": 1, "sub": 1, "subtract": 1, "addcmul": 2, "addcdiv": 2, "addmm": 2, "addbmm": 2,
    "baddbmm": 2, "addmv": 2, "addr": 2,
}  # fmt: skip


def operands(lib: Any, name: str) -> list[Any]:
    square = lib.arange(9.0).reshape(3, 3) + 1
    batch = lib.stack([square, square + 2])
    return {
        "addbmm": [square, batch, batch],
        "baddbmm": [batch, batch, batch],
        "addmv": [square[0], square, square[1]],
        "addr": [square, square[0], square[1]],
    }.get(name, [square, square * 2, square / 3][: DEPRECATED[name] + 1])


@pytest.mark.filterwarnings("ignore:This overload")
@pytest.mark.parametrize("name", [n for n in DEPRECATED if n != "subtract"])
def test_deprecated_forms(name: str, torch: ModuleType) -> None:
    def calls(lib: Any) -> Any:
        x, *rest = operands(lib, name)
        function = getattr(lib, name)
        results = []
        if name in ("add", "sub", "addcmul", "addcdiv"):
            results += [function(x, 2, *rest), getattr(x, name)(2, *rest)]
            results.append(function(x, 2, *rest, out=lib.empty(0)))
            results.append(getattr(x.clone(), name + "_")(2, *rest))
        else:
            results += [function(2, x, 3, *rest), function(2, x, *rest)]
            results += [getattr(x, name)(2, 3, *rest), getattr(x, name)(2, *rest)]
            results.append(getattr(x.clone(), name + "_")(2, 3, *rest))
        return results

    assert_same(torch, calls)


def test_a_deprecated_form_warns() -> None:
    x = evergrad.ones(2)
    with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
        evergrad.addcmul(x, 2, x, x)


def _gru(lib: Any) -> Any:
    x, h = lib.ones(2, 3, 4), lib.zeros(1, 3, 2)
    params = [lib.full((6, 4), 0.1), lib.full((6, 2), 0.2)]
    named = {"hx": h, "params": params, "has_biases": False, "num_layers": 1, "dropout": 0.0,
             "train": False, "bidirectional": False}  # fmt: skip
    packed = lib.gru(data=x.flatten(0, 1), batch_sizes=lib.tensor([3, 3]), **named)
    return [lib.gru(input=x, batch_first=False, **named), packed]


CALLS: dict[str, Callable[[Any], Any]] = {
    "flip": lambda lib: lib.arange(6).reshape(2, 3).flip(dims=(0, 1)),
    "permute": lambda lib: lib.zeros(2, 3).permute(dims=(1, 0)),
    "reshape": lambda lib: lib.arange(6).reshape(shape=(3, 2)),
    "view": lambda lib: [lib.arange(6).view(size=(3, 2)), lib.ones(2).view(dtype=lib.int32)],
    "expand": lambda lib: lib.ones(1).expand(size=(2, 3)),
    "repeat": lambda lib: lib.arange(2).repeat(repeats=(2, 2)),
    "tile": lambda lib: lib.arange(2).tile(dims=(2, 2)),
    "swapaxes": lambda lib: [lib.zeros(2, 3).swapaxes(axis0=0, axis1=1),
                             lib.zeros(2, 3).swapaxes_(axis0=0, axis1=1)],
    "splits": lambda lib: [lib.arange(6).hsplit(1, 2), lib.arange(6).hsplit(sections=3),
                           lib.hsplit(lib.arange(6), indices=[1]),
                           lib.arange(6).tensor_split(tensor_indices_or_sections=lib.tensor(4))],
    "squeeze": lambda lib: [lib.ones(1, 2, 1).squeeze(0, 2), lib.ones(1, 2, 1).squeeze_(0, 2),
                            lib.ones(1, 2).squeeze(axis=0), lib.ones(2).unsqueeze(axis=0)],
    "numpy names": lambda lib: [lib.exp(x=lib.ones(2)), lib.sqrt(a=lib.ones(2)),
                                lib.add(x1=lib.ones(2), x2=lib.ones(2)),
                                lib.trapezoid(lib.ones(3), x=lib.arange(3.0)),
                                lib.softmax(lib.ones(2), axis=0), lib.special.erf(x=lib.ones(2))],
    "in place": lambda lib: [lib.ones(2).mul_(other=3), lib.abs_(input=lib.ones(2)),
                             lib.fill_(input=lib.ones(2), value=3), lib.zero_(input=lib.ones(2)),
                             lib.ones(2).copy_(other=lib.zeros(2))],
    "isin": lambda lib: [lib.isin(element=1, test_elements=lib.arange(3)),
                         lib.isin(elements=lib.arange(3), test_element=1)],
    "result_type": lambda lib: [str(lib.result_type(tensor=lib.ones(2), other=1))[-7:],
                                str(lib.result_type(scalar=1, tensor=lib.ones(2)))[-7:],
                                str(lib.result_type(scalar1=1, scalar2=2))[-5:]],
    "resize_": lambda lib: lib.arange(6).resize_(size=(2, 2)),
    "set_": lambda lib: [lib.empty(0).set_(lib.arange(6.0), 1, (2, 2), (2, 1)),
                         lib.empty(0).set_(lib.arange(6.0).untyped_storage(), 1, (2,)).shape,
                         lib.ones(3).set_()],
    "constructors": lambda lib: [lib.Tensor(size=(2, 3)).shape, lib.Tensor(other=lib.ones(2)),
                                 lib.ones(2).new(size=(4,)).shape],
    "histogram": lambda lib: lib.histogram(lib.arange(4.0)).hist,
    "argsort": lambda lib: lib.argsort(lib.tensor([2.0, 1.0]), stable=True,
                                       out=lib.empty(0, dtype=lib.int64)),
    "count_nonzero": lambda lib: lib.ones(2, 3).count_nonzero(0, 1),
    "copies": lambda lib: [lib.split_copy(input=lib.ones(3), split_size=2),
                           lib.view_copy(lib.ones(3), dtype=lib.int32),
                           lib.unsafe_split(input=lib.ones(3), split_size=2)],
    "triangles": lambda lib: lib.tril_indices(2, 3, pin_memory=False, requires_grad=False),
    "ldl_factor": lambda lib: lib.linalg.ldl_factor(input=lib.eye(3))[0],
    "randint": lambda lib: [lib.randint(high=3, size=(2,)).shape,
                            lib.randint_like(lib.ones(3), low=1, high=2)],
    "random_": lambda lib: [lib.zeros(3).random_(**{"from": 3, "to": 4}),
                            lib.ones(2).random_(to=1)],
    "to": lambda lib: [lib.ones(2).to(dtype=lib.int32, non_blocking=True, copy=True),
                       lib.ones(2).to(tensor=lib.ones(1, dtype=lib.float64))],
    "gru": _gru,
    "factories": lambda lib: [lib.zeros(size=(2,)), lib.ones(size=[2]), lib.ones(3).new_zeros(
        size=(2,)), lib.ones(3).new_ones(size=(2,)), lib.empty(size=(2, 0)).shape],
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_calls_by_keyword(name: str, torch: ModuleType) -> None:
    assert_same(torch, CALLS[name], 1e-6)
