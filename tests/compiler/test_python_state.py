"""Python state found by reachability: a change of what a compiled function reads is noticed."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import evergrad as eg
from evergrad import nn

from .steps import assert_alike, program_count, randn

if TYPE_CHECKING:
    from .steps import Unknown  # type: ignore[attr-defined]

SCALE = 2.0
OPTIONS = {"scale": 2.0, "names": ["a"]}
SETTINGS = types.SimpleNamespace(scale=2.0, inner=types.SimpleNamespace(shift=1))


class Config:
    scale = 2.0

    def __init__(self) -> None:
        self.shift = 1.0


def with_global(x: Any) -> Any:
    return x * SCALE


def with_helper(x: Any) -> Any:
    return with_global(x) + 1


def with_item(x: Any) -> Any:
    return x * OPTIONS["scale"]


def with_record(x: Any) -> Any:
    return x * SETTINGS.scale + SETTINGS.inner.shift


def through_an_argument(x: Any) -> Any:
    return scaled(x, SETTINGS)


def scaled(x: Any, settings: Any) -> Any:
    return x * settings.scale


def inside_a_list(x: Any) -> Any:
    return sum([part * SCALE for part in (x, x)])


def with_default(x: Any, factors: Any = (1.0,), *, shift: float = 0.5) -> Any:
    return x * factors[0] + shift


GLOBALS: dict[str, tuple[Callable[[Any], Any], Callable[[pytest.MonkeyPatch], Any]]] = {
    "global": (with_global, lambda m: m.setitem(globals(), "SCALE", 5.0)),
    "helper": (with_helper, lambda m: m.setitem(globals(), "SCALE", 5.0)),
    "helper itself": (
        with_helper, lambda m: m.setitem(globals(), "with_global", lambda x: x * 7),
    ),
    "item": (with_item, lambda m: m.setitem(OPTIONS, "scale", 5.0)),
    "attribute": (with_record, lambda m: m.setattr(SETTINGS, "scale", 5.0)),
    "attribute of an attribute": (with_record, lambda m: m.setattr(SETTINGS.inner, "shift", 5)),
    "argument": (through_an_argument, lambda m: m.setattr(SETTINGS, "scale", 5.0)),
    "comprehension": (inside_a_list, lambda m: m.setitem(globals(), "SCALE", 5.0)),
    "defaults": (with_default, lambda m: m.setattr(with_default, "__defaults__", ((3.0,),))),
    "keyword": (with_default, lambda m: m.setattr(with_default, "__kwdefaults__", {"shift": 2.0})),
}  # fmt: skip


@pytest.mark.parametrize("name", GLOBALS)
def test_globals_and_what_they_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, change = GLOBALS[name]
    compiled, x = eg.compile(function), randn(3)
    for _ in range(2):
        assert_alike(compiled(x), function(x))
    before = function(x)
    with monkeypatch.context() as patch:
        change(patch)
        assert (function(x) != before).all(), "the change changes nothing"
        for _ in range(2):
            assert_alike(compiled(x), function(x))
    assert_alike(compiled(x), before)
    assert program_count(compiled) == 2


def test_a_default_that_is_changed_in_place() -> None:
    factors = [1.0]

    def function(x: Any, held: Any = factors) -> Any:
        return x * held[0]

    compiled, x = eg.compile(function), randn(3)
    assert_alike(compiled(x), x)
    factors[0] = 4.0
    assert_alike(compiled(x), x * 4)


def test_a_list_that_was_empty() -> None:
    factors: list[float] = []

    def function(x: Any) -> Any:
        for factor in factors:
            x = x * factor
        return x + 1

    compiled, x = eg.compile(function), randn(3)
    for expected in (x + 1, x * 3 + 1):
        for _ in range(2):
            assert_alike(compiled(x), expected)
        factors.append(3.0)


def test_cells() -> None:
    scale, weight, act = 2.0, randn(3), eg.tanh

    def inner(x: Any) -> Any:
        return act(x * scale)

    def function(x: Any) -> Any:
        return inner(x) + weight

    compiled, x = eg.compile(function), randn(3, seed=1)
    assert_alike(compiled(x), function(x))
    scale = 3.0
    assert_alike(compiled(x), function(x))
    weight = randn(3, seed=2)
    assert_alike(compiled(x), function(x))
    act = eg.sigmoid
    assert_alike(compiled(x), function(x))
    scale = float("3.0")
    compiled(x)
    assert program_count(compiled) == 4


class Owner:
    """No module: a class of the user's own that keeps a step with what belongs to it."""

    kind = "sum"

    def __init__(self) -> None:
        self.flag, self.weight, self.config = True, randn(3), Config()
        self.act: Any = eg.tanh

    @property
    def factor(self) -> Any:
        return self.config.scale

    @staticmethod
    def shifted(x: Any) -> Any:
        return x + SCALE

    def total(self, x: Any) -> Any:
        return x.sum() if self.kind == "sum" else x.mean()

    def step(self, x: Any) -> Any:
        y = self.act(x * self.weight * self.factor)
        y = self.shifted(y + self.config.shift)
        return self.total(y) if self.flag else y


def test_attributes_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner()
    compiled, x = eg.compile(owner.step), randn(3, seed=1)

    def check() -> None:
        for _ in range(2):
            assert_alike(compiled(x), owner.step(x))

    check()
    owner.kind = "mean"
    check()
    owner.flag = False
    check()
    owner.weight = randn(3, seed=2)
    check()
    owner.config.shift = 4.0
    check()
    monkeypatch.setattr(Config, "scale", 3.0)
    check()
    owner.act = eg.sigmoid
    check()
    monkeypatch.setitem(globals(), "SCALE", 9.0)
    check()
    assert program_count(compiled) == 8


class Scaled(nn.Module):
    """A module that looks at an object which is none."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.Linear(3, 3).double()

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.config.shift * SCALE


def test_modules_look_around(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config()
    model = nn.Sequential(Scaled(config))
    compiled, x = eg.compile(model), randn(2, 3)
    for change in (
        lambda: None, lambda: setattr(config, "shift", 3.0),
        lambda: monkeypatch.setitem(globals(), "SCALE", 4.0),
    ):  # fmt: skip
        change()
        assert_alike(compiled(x), model(x))


def test_objects_among_the_arguments() -> None:
    def function(x: Any, config: Config) -> Any:
        return x * config.shift

    compiled, x, config = eg.compile(function), randn(3), Config()
    assert_alike(compiled(x, config), x)
    config.shift = 3.0
    assert_alike(compiled(x, config), x * 3)


def test_partials_and_compiled_functions_inside() -> None:
    config, scale = Config(), 2.0
    inner = eg.compile(lambda x: x * scale)

    def function(config: Config, x: Any) -> Any:
        return inner(x) * config.shift

    compiled, x = eg.compile(functools.partial(function, config)), randn(3)
    assert_alike(compiled(x), x * 2)
    config.shift = 3.0
    assert_alike(compiled(x), x * 6)
    scale = 5.0
    assert_alike(compiled(x), x * 15)


def test_a_weak_reference() -> None:
    config = Config()
    reference = weakref.ref(config)
    compiled, x = eg.compile(lambda x: x * reference().shift), randn(3)  # type: ignore[union-attr]
    for shift in (1.0, 3.0):
        config.shift = shift
        for _ in range(2):
            assert_alike(compiled(x), x * shift)
            assert compiled.last_call.kind == "whole"


class Counting:
    def __init__(self) -> None:
        self.count = 0

    def step(self, x: Any) -> Any:
        self.count += 1
        return x * self.count


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_number_that_the_function_changes_itself(fullgraph: bool) -> None:
    ours, theirs = Counting(), Counting()
    assert_counted(eg.compile(ours.step, fullgraph=fullgraph), theirs.step)
    assert ours.count == theirs.count == 4
    assert type(ours.count) is int


def assert_counted(compiled: Any, eager: Any) -> None:
    """The first call shows that a number is changed; programs have it as an input then."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kinds = []
        for seed in range(4):
            assert_alike(compiled(randn(3, seed=seed)), eager(randn(3, seed=seed)))
            kinds.append(compiled.last_call.kind)
    assert kinds == ["traced", "whole", "whole", "whole"]


class CountingModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: Any) -> Any:
        self.count += 1
        return x * self.count


@pytest.mark.parametrize(
    "wrap", [lambda m: m.forward, lambda m: m.__call__, lambda m: lambda x: m(x)]
)
def test_a_number_that_a_module_changes_itself(wrap: Callable[[Any], Any]) -> None:
    ours, theirs = (nn.Sequential(nn.Tanh(), CountingModule()) for _ in range(2))
    assert_counted(eg.compile(wrap(ours)), wrap(theirs))
    assert ours[1].count == 4


def test_a_compiled_module_that_counts() -> None:
    ours, theirs = (nn.Sequential(nn.Tanh(), CountingModule()) for _ in range(2))
    assert_counted(eg.compile(ours), theirs)
    assert ours[1].count == theirs[1].count == 4


def step(x: Any) -> Any:
    """A global with the name of a method, and with an effect."""
    return open(x)


class Stepper:
    """Its constructor prints, its methods do not."""

    def __init__(self) -> None:
        print("made")
        self.factor = 2.0

    def step(self, x: Any) -> Any:
        return x * self.factor


def test_a_method_does_not_reach_a_global_of_its_name() -> None:
    stepper = Stepper()
    compiled = eg.compile(lambda x: stepper.step(x) + 1)
    for factor in (2.0, 3.0):
        stepper.factor = factor
        assert_alike(compiled(randn(3)), randn(3) * factor + 1)
        assert compiled.last_call.kind == "whole"


@pytest.mark.parametrize(
    "make", [lambda s: Stepper(), lambda s: type(s)(), lambda s: s.__class__()]
)
def test_a_constructor_that_the_function_calls(make: Any, capsys: Any) -> None:
    stepper = Stepper()
    compiled = eg.compile(lambda x: make(stepper).step(x))
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where type() is mentioned Python runs the function
        for _ in range(3):
            assert_alike(compiled(randn(3)), randn(3) * 2)
    assert capsys.readouterr().out == "made\n" * 3


def test_what_stays_is_compiled_once() -> None:
    owner = Owner()
    compiled = eg.compile(owner.step)
    for seed in range(4):
        owner.unread = seed  # type: ignore[attr-defined]
        owner.flag, owner.config.shift = bool(1), float("1.0")
        compiled(randn(3, seed=seed))
    assert program_count(compiled) == 1


def test_an_object_that_is_replaced_is_watched_from_then_on() -> None:
    owner = Owner()
    compiled, x = eg.compile(owner.step), randn(3, seed=1)
    for shift in (1.0, 2.0, 2.0):
        owner.config = Config()
        owner.config.shift = shift
        assert_alike(compiled(x), owner.step(x))
        owner.config.shift = shift + 5
        assert_alike(compiled(x), owner.step(x))


TABLE = randn(2, 3)
VIEWS: list[Callable[[Any], Any]] = [
    lambda t: t, lambda t: t.detach(), lambda t: t[:], lambda t: t + 0,
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_an_argument_that_is_also_a_global(view: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        return x * 2 + TABLE.sum(0)

    compiled = eg.compile(function)
    for x in (view(TABLE), randn(2, 3, seed=5), view(TABLE), TABLE.clone()):
        for _ in range(2):
            assert_alike(compiled(x), function(x))
            assert compiled.last_call.kind == "whole"


@pytest.mark.filterwarnings("ignore:.*an argument is also read .*through another view")
@pytest.mark.parametrize("view", VIEWS)
def test_an_argument_that_is_a_part_of_a_global(view: Callable[[Any], Any]) -> None:
    def function(x: Any) -> Any:
        return x * 2 + TABLE[0]

    compiled = eg.compile(function)
    for x in (view(TABLE[0]), randn(3, seed=5), view(TABLE[0]), TABLE[1].clone(), TABLE[1]):
        for _ in range(2):
            assert_alike(compiled(x), function(x))


class Fields(NamedTuple):
    """CPython 3.14 keeps what gives the annotations in the class."""

    scale: float
    unknown: Unknown | None = None


def test_annotations_are_no_state() -> None:
    fields = Fields(2.0)
    step = eg.compile(lambda x: x * fields.scale)
    x = randn(3)
    for _ in range(2):
        assert_alike(step(x), x * 2.0)
    assert program_count(step) == 1
