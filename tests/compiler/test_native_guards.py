"""The table of identity guards that native code evaluates."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import OrderedDict, defaultdict
from types import CellType, SimpleNamespace
from typing import Any

import pytest

from evergrad.compiler.frontend.guards.native_guards import same_objects
from evergrad.compiler.frontend.state.places import KeysSlot


class Kind:
    known = object()

    @property
    def broken(self) -> Any:
        raise self.error  # type: ignore[attr-defined]


def state() -> SimpleNamespace:
    def function(a: int = 1, *, b: int = 2) -> None: ...

    return SimpleNamespace(
        entries={"a": object(), "b": None, 3: "three"}, empty={}, items=[object(), None], none=[],
        factory=defaultdict(list, a=[1]), cell=CellType(object()), function=function,
        holder=SimpleNamespace(x=object()), keys={"lr": 0.1, "betas": (0.9,)},
    )  # fmt: skip


def guard(s: SimpleNamespace) -> Any:
    slots = [
        (s.entries, "a"), (s.entries, "missing"), (s.factory, "a"), (s.factory, "b"),
        (s.cell, None), (vars(Kind), "known"), (vars(Kind), "unknown"),
        (s.function, "__defaults__"), (s.function, "__code__"), (s.holder, "x"),
        (s.holder, "missing"), (s.items, 0), (KeysSlot(s.keys), "now"), (KeysSlot(s.items), "now"),
    ]  # fmt: skip
    return same_objects([s.items, s.none, s.empty, ("immutable",)], slots, [s.factory])


CHANGES: dict[str, Any] = {
    "an entry": lambda s: s.entries.update(a=object()),
    "an entry is gone": lambda s: s.entries.pop("a"),
    "a missing entry": lambda s: s.entries.update(missing=None),
    "an entry of a subclass": lambda s: s.factory.update(a=[1]),
    "a missing entry of a subclass": lambda s: s.factory["b"],
    "the size of a dictionary": lambda s: s.factory.update(z=1),
    "an empty dictionary": lambda s: s.empty.update(a=1),
    "a cell": lambda s: setattr(s.cell, "cell_contents", 1),
    "an empty cell": lambda s: delattr(s.cell, "cell_contents"),
    "defaults": lambda s: setattr(s.function, "__defaults__", (5,)),
    "no defaults": lambda s: setattr(s.function, "__defaults__", None),
    "code": lambda s: setattr(s.function, "__code__", (lambda a=1, *, b=2: None).__code__),
    "an attribute": lambda s: setattr(s.holder, "x", object()),
    "an attribute is gone": lambda s: delattr(s.holder, "x"),
    "a missing attribute": lambda s: setattr(s.holder, "missing", None),
    "an item": lambda s: s.items.__setitem__(0, object()),
    "another item": lambda s: s.items.__setitem__(1, 0),
    "an item more": lambda s: s.items.append(None),
    "an item less": lambda s: s.items.pop(),
    "an empty list": lambda s: s.none.append(None),
    "a key more": lambda s: s.keys.update(more=1),
    "a key less": lambda s: s.keys.pop("lr"),
    "the order of keys": lambda s: s.keys.update(lr=s.keys.pop("lr")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_detected(name: str) -> None:
    held = state()
    holds = guard(held)
    held.entries["b"] = 1  # not watched
    held.keys["lr"] = 0.2
    assert holds() and holds()
    CHANGES[name](held)
    assert not holds() and not holds()
    assert guard(held)()
    assert "b" not in held.factory or name == "a missing entry of a subclass"


@pytest.mark.parametrize("name", ["known", "unknown"])
def test_attributes_of_classes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = guard(state())
    with monkeypatch.context() as patch:
        patch.setattr(Kind, name, object(), raising=False)
        assert not holds()
    assert holds()


def test_an_ordered_dictionary_by_its_order() -> None:
    ordered = OrderedDict(a=1, b=2)
    holds = same_objects((), [(KeysSlot(ordered), "now")])
    assert holds()
    ordered.move_to_end("a")
    assert not holds()


@pytest.mark.parametrize(
    ("error", "raised"), [(KeyboardInterrupt(), True), (ZeroDivisionError(), True),
                          (AttributeError(), False)],
)  # fmt: skip
def test_an_attribute_that_raises(error: BaseException, raised: bool) -> None:
    class Switch(Kind):
        is_broken = False

        @property
        def value(self) -> Any:
            if self.is_broken:
                raise error
            return Kind.known

    switch = Switch()
    holds = same_objects((), [(switch, "value")])
    assert holds()
    switch.is_broken = True
    if raised:
        with pytest.raises(type(error)):
            holds()
    else:
        assert not holds()
    switch.is_broken = False
    assert holds()


def test_references_are_balanced() -> None:
    held = state()
    holds = guard(held)
    holds()
    found = [held.entries["a"], held.holder.x, Kind.known, held.items[0], None]
    before = [sys.getrefcount(member) for member in found]
    for _ in range(1000):
        holds()
    after = [sys.getrefcount(member) for member in found]
    assert after[:-1] == before[:-1] and abs(after[-1] - before[-1]) < 100


def test_what_is_watched_is_freed_with_the_guard() -> None:
    class Held:
        pass

    entries = {"a": Held()}
    gone = weakref.ref(entries["a"])
    holds = same_objects([entries], [(entries, "a")])
    entries.clear()
    assert gone() is not None and not holds()
    del holds
    gc.collect()
    assert gone() is None
