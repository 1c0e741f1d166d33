"""Which programs a function keeps, and the warning when its signatures keep changing."""

from __future__ import annotations

import datetime
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import config
from evergrad.compiler.cache.program_lru import ProgramLRU
from evergrad.compiler.cache.signature_churn import SignatureChurn, leaf_paths
from evergrad.core.tree import tree_flatten


@dataclass
class Kept:
    nbytes: int


def lru(programs: int = 3, nbytes: int = 1000) -> ProgramLRU[str, Kept]:
    return ProgramLRU(programs, nbytes)


def test_the_least_recently_used_one_is_evicted() -> None:
    kept = lru()
    first, *others = [Kept(1) for _ in range(4)]
    for name, value in zip("abc", (first, *others[:2]), strict=True):
        assert kept.put(name, value) == []
    assert kept.get("a") is first
    assert kept.put("d", others[2]) == [others[0]]
    assert list(kept) == ["c", "a", "d"] and len(kept) == 3 and "b" not in kept
    assert kept.get("b") is None


def test_bytes_are_bounded_but_for_the_last_one() -> None:
    kept = lru(10, 100)
    assert kept.put("a", Kept(40)) == []
    assert kept.put("b", Kept(40)) == []
    assert [value.nbytes for value in kept.put("c", Kept(50))] == [40]
    assert kept.nbytes == 90
    assert len(kept.put("d", Kept(5000))) == 2
    assert list(kept) == ["d"] and kept.nbytes == 5000


def test_bytes_may_grow_while_a_program_is_kept() -> None:
    kept = lru(10, 100)
    grown = Kept(0)
    kept.put("a", grown)
    grown.nbytes = 400
    assert kept.put("b", Kept(10)) == [grown]


def test_a_key_that_is_put_again_replaces_its_program() -> None:
    kept = lru()
    kept.put("a", Kept(1))
    kept.put("b", Kept(2))
    assert kept.put("a", Kept(3)) == []
    assert list(kept) == ["b", "a"] and kept.nbytes == 5


def test_limits_change_at_any_time() -> None:
    kept = lru(5)
    for name in "abcde":
        kept.put(name, Kept(1))
    kept.max_programs = 2
    assert len(kept.enforce()) == 3 and list(kept) == ["d", "e"]
    kept.max_bytes = 0
    assert len(kept.enforce()) == 1 and list(kept) == ["e"]


def test_evict_and_clear_return_what_they_remove() -> None:
    kept = lru()
    value = Kept(7)
    kept.put("a", value)
    kept.put("b", Kept(8))
    assert kept.evict("a") is value and kept.evict("a") is None
    assert [v.nbytes for v in kept.clear()] == [8]
    assert len(kept) == 0 and kept.nbytes == 0 and kept.clear() == []


def test_the_limits_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "MAX_PROGRAMS", 2)
    monkeypatch.setattr(config, "MAX_PROGRAM_BYTES", 12345)
    compiled = eg.compile(lambda x: x + 1)
    assert (compiled.programs.max_programs, compiled.programs.max_bytes) == (2, 12345)
    with pytest.raises(ValueError, match="at least one program"):
        ProgramLRU(0)


# -- signatures that keep changing --------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    width: int


def warned(churn: SignatureChurn, values: Any) -> list[str]:
    found = [churn.record(["n"], [value]) for value in values]
    return [text for text in found if text is not None]


@pytest.mark.parametrize(
    "make",
    [int, np.float64, np.int64, str, Options, lambda n: (1, n).__repr__(), lambda n: n + 0.5j],
    ids=["int", "np.float64", "np.int64", "str", "dataclass", "text", "complex"],
)
def test_values_that_keep_changing(make: Any) -> None:
    churn = SignatureChurn("step", many_values=4)
    (text,) = warned(churn, [make(n) for n in range(20)])
    assert "step was compiled for 4 values of n" in text and "fix: pass" in text
    assert repr(make(0))[:30] in text and repr(make(9)) not in text


def test_values_that_repeat_and_floats_never_warn() -> None:
    churn = SignatureChurn("step", many_values=4)
    assert warned(churn, [1, 2, 3] * 20) == []
    assert warned(churn, [n + 0.5 for n in range(50)]) == []
    assert warned(churn, [True, False, None]) != []  # three more values: now there are six


def test_shapes_that_keep_changing() -> None:
    churn = SignatureChurn("step", many_shapes=5)
    fixed = eg.ones(3)
    given = [[eg.ones(n, 2), fixed, eg.ones(n)] for n in range(1, 30)]
    found = [churn.record(["x", "y", "z"], leaves) for leaves in given]
    (text,) = [t for t in found if t is not None]
    assert "5 shapes of x (float32[1,2], float32[2,2], float32[3,2], ...)" in text
    assert "MAX_PROGRAMS" in text and " y" not in text


def test_values_without_a_hash() -> None:
    churn = SignatureChurn("step", many_values=3)
    assert len(warned(churn, [{"a": n} for n in range(9)])) == 1


def test_paths_of_leaves() -> None:
    Pair = namedtuple("Pair", "left right")

    def step(x: Any, batch: Any, *rest: Any, flag: bool = False, **more: Any) -> None: ...

    def paths(function: Any, *args: Any, **kwargs: Any) -> list[str]:
        return leaf_paths(function, tree_flatten((args, kwargs))[1])

    found = paths(step, 1, {"a": [2, 3]}, (4,), Pair(5, 6), flag=True, z=OrderedDict(q=7))
    assert found == ["x", "batch['a'][0]", "batch['a'][1]", "rest[0][0]", "rest[1].left",
                     "rest[1].right", "flag", "z['q']"]  # fmt: skip
    assert paths(step, 1, defaultdict(list, k=2)) == ["x", "batch['k']"]
    assert paths(print, 1, 2) == ["args[0]", "args[1]"]
    assert paths(type("C", (), {"__call__": 3})(), 1) == ["argument 0"]


def test_a_compiled_function_warns_of_an_int_once() -> None:
    """Of one that is a shape: others are inputs of one program."""
    compiled = eg.compile(lambda x, count: x.expand(count, 2).sum(0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in range(1, 14):
            assert compiled(eg.ones(2), count).tolist() == [count, count]
    texts = [str(w.message) for w in caught if "values of count" in str(w.message)]
    assert len(texts) == 1 and "a int: 1, 2, 3, ..." in texts[0]
    assert caught[-1].filename == __file__


def test_a_compiled_function_warns_of_shapes_once() -> None:
    compiled = eg.compile(lambda x: x * 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in range(1, 40):
            compiled(eg.ones(count))
    assert len([w for w in caught if "shapes of x" in str(w.message)]) == 1


# -- calls whose values keep changing are run by Python ------------------------------------------


class Record:
    def __init__(self, gain: int) -> None:
        self.gain = gain

    def __getitem__(self, key: int) -> int:
        return self.gain


CHANGING: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "a_text": (lambda x, name: x * len(name), "{}".format),
    "a_row": (lambda x, n: x[n : n + 1] * 2, lambda n: n),
    "a_remainder": (lambda x, n: x[n % 3 :] * 2, np.int64),
    "a_new_function": (lambda x, f: f(x), lambda n: lambda v: v * n),
    "a_new_object": (lambda x, o: x * o[0], Record),
    "an_array": (lambda x, a: x * eg.from_numpy(a), lambda n: np.full(1, n, np.float32)),
    "numbers_of_a_tensor": (lambda x, v: x * eg.tensor(v), lambda n: [n + 0.5, 1.0]),
    "a_date": (lambda x, d: x * d.day, lambda n: datetime.date(2000 + n, 1, 1 + n % 28)),
}


@pytest.mark.filterwarnings("ignore:.*was compiled for 8 values")
@pytest.mark.parametrize("name", CHANGING)
def test_new_values_are_run_by_python(name: str) -> None:
    function, make = CHANGING[name]
    compiled, x = eg.compile(function), eg.ones(60, 2)
    values = [make(n) for n in range(40)]  # all of them live: none is another one's address
    for value in values:
        assert eg.equal(compiled(x, value), function(x, value))
    assert compiled.last_call.kind == "eager"
    assert compiled.last_call.reason.endswith("changes from call to call")
    assert len(compiled.programs) <= 10


@pytest.mark.filterwarnings("ignore:.*was compiled for 8 values")
def test_a_value_that_recurs_gets_a_program() -> None:
    compiled, x = eg.compile(lambda x, name: x * len(name)), eg.ones(2)
    kinds = []
    for _ in range(3):
        for n in range(20):
            assert compiled(x, "a" * n).tolist() == [n, n]
            kinds.append(compiled.last_call.kind)
    assert kinds[:8] == ["whole"] * 8
    assert set(kinds[8:20]) == {"eager"}
    assert set(kinds[20:]) == {"whole"}
    assert len(compiled.programs) == 20


@pytest.mark.filterwarnings("ignore:.*was compiled for 8 values")
def test_values_that_recur_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "MAX_PROGRAMS", 12)
    compiled, x = eg.compile(lambda x, name: x * len(name)), eg.ones(2)
    for _ in range(4):
        for n in range(16):
            assert compiled(x, "a" * n).tolist() == [n, n]
    assert compiled.churn.recurred == 4


def test_whole_programs_are_made_for_all_values_where_they_are_demanded() -> None:
    compiled, x = eg.compile(lambda x, name: x * len(name), fullgraph=True), eg.ones(2)
    with pytest.warns(RuntimeWarning, match="was compiled for 8 values of name"):
        for n in range(12):
            assert compiled(x, "a" * n).tolist() == [n, n]
            assert compiled.last_call.kind == "whole"


def test_numbers_that_a_program_is_for_are_counted() -> None:
    compiled, x = eg.compile(lambda x, v: x * eg.tensor(v)), eg.ones(2)
    with pytest.warns(RuntimeWarning, match=r"was compiled for 8 values of v\[0\]"):
        for n in range(12):
            compiled(x, [n + 0.5, 1.0])


def test_sizes_that_keep_changing_are_reported() -> None:
    compiled, x = eg.compile(lambda x, n: x[: int(n.item())] * 2), eg.ones(100)
    with pytest.warns(RuntimeWarning, match="not one compiled program"):
        for n in range(1, 70):
            assert len(compiled(x, eg.tensor(n))) == n
    assert compiled.last_call.kind == "eager"
