"""Identity guards: whether containers and slots hold the same objects as before."""

from __future__ import annotations

from collections import OrderedDict
from types import CellType
from typing import Any

import pytest

from evergrad.compiler.frontend.guards.identity_guards import identity_guard
from evergrad.compiler.frontend.guards.slot_guards import SlotGuards


class Record:
    kind = "a kind"

    def __init__(self) -> None:
        self.rate, self.name = 1000.5, "a name"


def held() -> dict[str, Any]:
    record = Record()
    return {
        "empty": {}, "options": {"lr": 0.25, "betas": (0.9, 0.999)}, "ordered": OrderedDict(a=[1]),
        "record": vars(record), "list": [object(), 10**9], "none": [], "keep": [record],
    }  # fmt: skip


CHANGES: dict[str, Any] = {
    "another value": lambda c: c["options"].update(lr=0.5),
    "an equal value": lambda c: c["options"].update(lr=float("0.25")),
    "one more value": lambda c: c["empty"].update(a=1),
    "one value less": lambda c: c["options"].pop("lr"),
    "the order of values": lambda c: c["ordered"].update(b=1),
    "an attribute": lambda c: setattr(c["keep"][0], "rate", 1.5),
    "another item": lambda c: c["list"].__setitem__(1, 10**10),
    "an item at the end": lambda c: c["keep"].append(None),
    "an item less at the end": lambda c: c["keep"].pop(),
    "an item where there was none": lambda c: c["none"].append(1),
    "nothing left": lambda c: [part.clear() for part in c.values()],
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_seen(name: str) -> None:
    collections = held()
    holds = identity_guard([*collections.values(), ("what", "cannot", "change")])
    assert holds()
    CHANGES[name](collections)
    assert not holds()
    assert identity_guard(collections.values())()


def test_what_was_put_back_is_the_same() -> None:
    collections = held()
    holds = identity_guard(collections.values())
    rate = collections["options"]["lr"]
    collections["options"]["lr"] = 1
    assert not holds()
    collections["options"]["lr"] = rate
    assert holds()


def places() -> tuple[Any, SlotGuards]:
    """A cell, a dictionary, a list and a function, and guards on them."""
    cell, names, items = CellType(object()), {"here": object(), 3: 1}, [object(), 5]

    def function(value: Any = "a default") -> None: ...

    pairs = [(cell, None), (names, "here"), (names, "not here"), (names, 3), (items, 1),
             (vars(Record), "kind"), (function, "__defaults__")]  # fmt: skip
    return (cell, names, items, function), SlotGuards(pairs)


@pytest.mark.parametrize(
    "change",
    [
        lambda cell, names, items, function: setattr(cell, "cell_contents", object()),
        lambda cell, names, items, function: delattr(cell, "cell_contents"),
        lambda cell, names, items, function: names.update(here=None),
        lambda cell, names, items, function: names.pop("here"),
        lambda cell, names, items, function: names.update({"not here": None}),
        lambda cell, names, items, function: names.update({3: 2}),
        lambda cell, names, items, function: items.pop(),
        lambda cell, names, items, function: setattr(function, "__defaults__", ("other",)),
    ],
)
def test_places(change: Any) -> None:
    held, guards = places()
    assert guards.hold()
    held[1]["other"] = 1  # nobody reads it
    held[2][0] = 1
    assert guards.hold()
    change(*held)
    assert not guards.hold()


def test_attributes_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    _, guards = places()
    with monkeypatch.context() as patch:
        patch.setattr(Record, "kind", object())
        assert not guards.hold()
    assert guards.hold()


def test_nothing_to_look_at() -> None:
    assert identity_guard([])() and SlotGuards([]).hold()


def test_a_dictionary_that_grows_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another thread may make it do where there is no GIL."""
    watched = {"a": object(), "b": object()}
    holds = identity_guard([watched])

    def grow(now: Any, then: Any) -> bool:
        watched["c"] = object()
        return now is then

    monkeypatch.setattr("evergrad.compiler.frontend.guards.identity_guards.is_", grow)
    assert not holds()
