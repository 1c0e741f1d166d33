"""Whether everything holds the same objects as before."""

from __future__ import annotations

from collections import OrderedDict
from types import CellType
from typing import Any

import pytest

from evergrad.compiler.frontend.identity_guards import MISSING, unchanged
from evergrad.compiler.native.object_words import cell_content


class Record:
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
    are_same = unchanged([*collections.values(), ("what", "cannot", "change")])
    assert are_same()
    CHANGES[name](collections)
    assert not are_same()
    assert unchanged(collections.values())()


def test_what_was_put_back_is_the_same() -> None:
    collections = held()
    are_same = unchanged(collections.values())
    rate = collections["options"]["lr"]
    collections["options"]["lr"] = 1
    assert not are_same()
    collections["options"]["lr"] = rate
    assert are_same()


def words_and_names() -> tuple[Any, Any]:
    """A cell and a dictionary, and a function that tells whether they hold what they do now."""
    cell, names = CellType(object()), {"here": object()}
    are_same = unchanged(
        [], [(cell, cell_content(), cell.cell_contents)],
        [(names, "here", names["here"]), (names, "not here", MISSING)],
    )  # fmt: skip
    return (cell, names), are_same


@pytest.mark.parametrize(
    "change",
    [
        lambda cell, names: setattr(cell, "cell_contents", object()),
        lambda cell, names: delattr(cell, "cell_contents"),
        lambda cell, names: names.update(here=None),
        lambda cell, names: names.pop("here"),
        lambda cell, names: names.update({"not here": None}),
    ],
)
def test_words_and_names(change: Any) -> None:
    held, are_same = words_and_names()
    assert are_same()
    held[1]["other"] = 1  # nobody has asked for it
    assert are_same()
    change(*held)
    assert not are_same()


def test_nothing_to_look_at() -> None:
    assert unchanged([])()
