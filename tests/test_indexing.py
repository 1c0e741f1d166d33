"""``x[...]`` in all its forms, and functions of indices and masks, against PyTorch."""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import evergrad as eg
from evergrad.errors import TraceError
from evergrad.func import vmap
from evergrad.memory.ledger import LEDGER
from evergrad.ops.rows.indexing.functions import one_hot
from twins import agree, assert_same, fixed, leaf, plain, refuse

SHAPE = (2, 3, 4)
VALUES = (np.arange(24.0).reshape(SHAPE) - 11.5).tolist()

# -- random index expressions -------------------------------------------------------------------


def _bound(extent: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-extent - 1, extent + 1)


def _slices(extent: int) -> st.SearchStrategy[slice]:
    return st.builds(slice, _bound(extent), _bound(extent), st.none() | st.integers(1, 3))


def _places(extent: int, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    count = int(np.prod(shape))
    numbers = st.lists(st.integers(-extent, extent - 1), min_size=count, max_size=count)
    return numbers.map(lambda listed: np.array(listed, dtype=np.int64).reshape(shape))


def _masks(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    count = int(np.prod(shape))
    truths = st.lists(st.booleans(), min_size=count, max_size=count)
    return truths.map(lambda listed: np.array(listed, dtype=bool).reshape(shape))


@st.composite
def indices(draw: Any, shape: tuple[int, ...] = SHAPE) -> tuple[Any, ...]:
    """An index: numbers, slices, ``None``, ``...``, truths, index arrays and at most one mask."""
    common = draw(st.sampled_from([(), (1,), (2,), (2, 1), (1, 3), (2, 3), (0,)]))
    items: list[Any] = []
    dim = 0
    kinds = ["number", "slice", "array", "none", "truth", "whole", "list", "mask"]
    while dim < len(shape) and draw(st.integers(0, 9)):
        kind = draw(st.sampled_from(kinds))
        extent = shape[dim]
        if kind in ("none", "truth"):
            items.append(None if kind == "none" else draw(st.booleans()))
            continue
        if kind == "mask":
            kinds.remove("mask")  # two masks seldom hold equally often
            taken = draw(st.integers(1, len(shape) - dim))
            items.append(draw(_masks(shape[dim : dim + taken])))
            dim += taken
            continue
        dim += 1
        if kind == "number":
            items.append(draw(st.integers(-extent, extent - 1)))
        elif kind == "slice":
            items.append(draw(_slices(extent)))
        elif kind == "whole":
            items.append(slice(None))
        elif kind == "array":
            items.append(draw(_places(extent, common)))
        else:
            items.append(draw(_places(extent, (2,))).tolist())
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    return tuple(items)


def _in(ns: Any, index: tuple[Any, ...]) -> Any:
    """The index with arrays as tensors of the library."""
    given_items = tuple(
        ns.tensor(i.tolist(), dtype=ns.bool if i.dtype == bool else ns.int64).reshape(i.shape)
        if isinstance(i, np.ndarray)
        else i
        for i in index
    )
    return given_items[0] if len(given_items) == 1 else given_items


def _outcome(program: Any, ns: Any) -> Any:
    """What a program gives, or which kind of error it raises."""
    try:
        return plain(program(ns))
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return next(
            kind for kind in (IndexError, TypeError, ValueError, RuntimeError)
            if isinstance(error, kind)
        )  # fmt: skip


def _same_outcome(program: Any, torch: ModuleType) -> None:
    theirs, ours = _outcome(program, torch), _outcome(program, eg)
    if isinstance(theirs, type):
        assert ours is theirs
    else:
        assert_same(ours, theirs)


def _shows_each_once(torch: Any, index: tuple[Any, ...]) -> bool:
    """Whether no element is named twice: PyTorch does not say which write then stays."""
    try:
        numbers = torch.arange(24).reshape(SHAPE)[_in(torch, index)]
    except (IndexError, RuntimeError):
        return True
    return bool(numbers.unique().numel() == numbers.numel())


@given(index=indices())
def test_read(index: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, VALUES)
        y = x[_in(ns, index)]
        return y, ns.autograd.grad((y * y).sum(), x)

    _same_outcome(program, torch)


@given(index=indices(), strided=st.booleans())
def test_read_again_and_of_strided(index: Any, strided: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = ns.arange(24).reshape(4, 3, 2).transpose(0, 2) if strided else ns.arange(24).view(SHAPE)
        y = x[_in(ns, index)]
        return y, y[..., None], y[:1] if y.dim() else y

    _same_outcome(program, torch)


@given(index=indices(), number=st.booleans(), cut=st.integers(0, 3))
def test_write(index: Any, number: bool, cut: int, torch: ModuleType) -> None:
    """A number, or a tensor that may have to be broadcast; gradients of both sides."""
    assume(number or _shows_each_once(torch, index))

    def program(ns: Any) -> Any:
        x, w = leaf(ns, VALUES), leaf(ns, VALUES)
        y = x * 2
        place = _in(ns, index)
        shape = tuple(x.detach()[place].shape)[cut:]
        count = int(np.prod(shape))
        value = w.sin().reshape(-1).repeat(3)[:count].reshape(shape)
        y[place] = 7.5 if number else value
        grads = ns.autograd.grad((y * y).sum(), [x, w], allow_unused=True, materialize_grads=True)
        return y, grads

    _same_outcome(program, torch)


@given(index=indices(), number=st.booleans())
def test_add_in_place(index: Any, number: bool, torch: ModuleType) -> None:
    assume(_shows_each_once(torch, index))

    def program(ns: Any) -> Any:
        x, w = leaf(ns, VALUES), leaf(ns, 1.5)
        y = x * 2
        y[_in(ns, index)] += 3 if number else w
        y[_in(ns, index)] *= 2
        return y, ns.autograd.grad((y * y).sum(), [x, w], allow_unused=True, materialize_grads=True)

    _same_outcome(program, torch)


@given(index=indices())
def test_put(index: Any, torch: ModuleType) -> None:
    """Repeated places add up with ``accumulate``."""
    places = tuple(i for i in index if isinstance(i, np.ndarray) and i.ndim)

    def program(ns: Any) -> Any:
        x, w = leaf(ns, VALUES), leaf(ns, 1.5)
        given_places = tuple(_in(ns, (i,)) for i in places)
        y = x.index_put(given_places, w, accumulate=True)
        return y, ns.autograd.grad((y * y).sum(), [x, w])

    if places and len({i.dtype.kind for i in places}) == 1 and places[0].dtype.kind == "i":
        _same_outcome(program, torch)


# -- forms PyTorch treats in its own way --------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        lambda ns, x: x[[0, 1], [1, 2]],
        lambda ns, x: x[[[0, 1], [1, 2]]],
        lambda ns, x: x[[0, slice(None)]],
        lambda ns, x: x[[ns.tensor(0), ns.tensor(1)]],
        lambda ns, x: x[np.array([1, 0])],
        lambda ns, x: x[np.int64(1), np.array(2)],
        lambda ns, x: x[range(2)],
        lambda ns, x: x[:, (0, 2)],
        lambda ns, x: x[ns.tensor(0) : ns.tensor(1)],
        lambda ns, x: x[:, ns.tensor([1], dtype=ns.int32)],
        lambda ns, x: x[ns.tensor(True)],
        lambda ns, x: x[0, ns.tensor(False)],
        lambda ns, x: x[ns.tensor([1, 0], dtype=ns.uint8)],
        lambda ns, x: x[...,],
        lambda ns, x: x[..., ...],
        lambda ns, x: x[()],
        lambda ns, x: x[[]],
        lambda ns, x: list(x),
    ],
)
def test_forms(read: Any, torch: ModuleType) -> None:
    agree(lambda ns: read(ns, fixed(ns, VALUES)), torch)


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda ns, x: x[5], "index 5 is out of bounds for dimension 0 with size 2"),
        (lambda ns, x: x[-3], "index -3 is out of bounds for dimension 0 with size 2"),
        (lambda ns, x: x[0, 3], "index 3 is out of bounds for dimension 1 with size 3"),
        (lambda ns, x: x[0, 0, 0, 0], "too many indices for tensor of dimension 3"),
        (lambda ns, x: x[..., 0, 0, 0, 0], "too many indices for tensor of dimension 3"),
        (lambda ns, x: x[::-1], "step must be greater than zero"),
        (lambda ns, x: x[::0], "slice step cannot be zero"),
        (lambda ns, x: x[1.0], "only integers, slices"),
        (lambda ns, x: x[{0}], "only integers, slices"),
        (lambda ns, x: x[0.5:], "slice indices must be integers"),
        (lambda ns, x: x[ns.tensor([5])], "index 5 is out of bounds for dimension 0 with size 2"),
        (lambda ns, x: x[:, ns.tensor([-4])], "index -4 is out of bounds for dimension 0 with"),
        (lambda ns, x: x[ns.tensor([0]), ns.tensor([3])], "index 3 is out of bounds for dimension"),
        (lambda ns, x: x[ns.tensor([1.0])], "tensors used as indices must be long, int, byte or"),
        (lambda ns, x: x[ns.tensor([0, 1]), ns.tensor([0, 1, 2])], "shape mismatch: indexing"),
        (lambda ns, x: x[ns.tensor([True] * 3)], r"The shape of the mask \[3\] at index 0 does"),
        (lambda ns, x: x[0, 0, 0][0], "invalid index of a 0-dim tensor"),
        (lambda ns, x: list(x[0, 0, 0]), "iteration over a 0-d tensor"),
        (lambda ns, x: x.__setitem__(0, [1.0]), "can't assign a list to a"),
        (lambda ns, x: x.__setitem__(0, 1j), "value cannot be converted to type"),
        (lambda ns, x: x.__setitem__(0, ns.ones(5)), "The expanded size of the tensor"),
        (lambda ns, x: x.__setitem__(ns.tensor([0]), ns.ones(5).double()), "shape mismatch: value"),
        (lambda ns, x: x.__setitem__(ns.tensor([0]), ns.ones(4).long()), "Index put requires the"),
        (lambda ns, x: x.__setitem__(ns.tensor([7]), 1.0), "index 7 is out of bounds for"),
        (lambda ns, x: x.gather(0, ns.tensor([[[5]]])), "index 5 is out of bounds for dimension 0"),
        (lambda ns, x: x.gather(0, ns.tensor([[[-1]]])), "index -1 is out of bounds for dimension"),
        (lambda ns, x: x.index_select(0, ns.tensor([-1])), "index out of range in self"),
        (lambda ns, x: ns.embedding(x[0], ns.tensor([3])), "index out of range in self"),
        (lambda ns, x: x.scatter(0, ns.tensor([[[2]]]), 1.0), "index 2 is out of bounds for"),
        (lambda ns, x: "a" in x, "only supports Tensor or scalar"),
    ],
)
def test_refused(read: Any, words: str, torch: ModuleType) -> None:
    refuse(lambda ns: read(ns, fixed(ns, VALUES)), torch, match=words)


@pytest.mark.parametrize("element", [-11.5, 3, True])
def test_contains(element: Any, torch: ModuleType) -> None:
    agree(lambda ns: element in fixed(ns, VALUES), torch)


def test_failed_writes_change_nothing() -> None:
    x = eg.zeros(3)
    for write in (
        lambda: x.index_add_(0, eg.tensor([0, 3]), eg.ones(2)),
        lambda: x.index_copy_(0, eg.tensor([0, 3]), eg.ones(2)),
        lambda: x.scatter_(0, eg.tensor([0, 3]), 1.0),
        lambda: x.__setitem__(eg.tensor([0, 3]), 1.0),
    ):
        with pytest.raises((IndexError, RuntimeError)):
            write()
    assert x.tolist() == [0, 0, 0]


# -- what depends on data -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda ns, x, w: x[x > 0],
        lambda ns, x, w: ns.masked_select(x, x[0] > -10),
        lambda ns, x, w: ns.masked_select(x[0], x > 0),
        lambda ns, x, w: x.transpose(0, 2).masked_select(x.transpose(0, 2) > 0),
        lambda ns, x, w: x.masked_scatter(x > 0, w),
        lambda ns, x, w: x[0].masked_scatter(x > 0, w * 2),
        lambda ns, x, w: (x * 1).masked_scatter_(x > 3, w),
        lambda ns, x, w: x[ns.nonzero(x > 5, as_tuple=True)],
        lambda ns, x, w: x[ns.where(x > 5)],
        lambda ns, x, w: ns.repeat_interleave(x, ns.tensor([2, 0, 1]), 1),
        lambda ns, x, w: ns.repeat_interleave(x, ns.tensor([2]), 0),
    ],
)
def test_data_dependent(function: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, VALUES), leaf(ns, VALUES)
        y = function(ns, x, w)
        return y, ns.autograd.grad((y * y).sum(), [x, w], allow_unused=True, materialize_grads=True)

    agree(program, torch)


@pytest.mark.parametrize(
    "function",
    [
        lambda ns, x: ns.nonzero(x),
        lambda ns, x: ns.argwhere(x > 0),
        lambda ns, x: ns.nonzero(x[0, 0, 0]),
        lambda ns, x: ns.nonzero(x[0, 0, 0], as_tuple=True),
        lambda ns, x: (x > 0).nonzero(),
        lambda ns, x: ns.repeat_interleave(ns.tensor([1, 0, 3])),
    ],
)
def test_places(function: Any, torch: ModuleType) -> None:
    agree(lambda ns: function(ns, fixed(ns, VALUES)), torch)


@pytest.mark.parametrize(
    ("classes", "count"), [([0, 2], -1), ([0, 2], 4), ([[1], [0]], 2), (1, 3), ([], 3), ([0, 2], 2),
                           ([-1], 2), ([], -1)]
)  # fmt: skip
def test_one_hot(classes: Any, count: int, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        function = one_hot if ns is eg else torch.nn.functional.one_hot
        return function(ns.tensor(classes, dtype=ns.int64), count)

    _same_outcome(program, torch)


def test_a_mask_cannot_be_read_while_tracing() -> None:
    def program(x: Any) -> Any:
        return x[x > 0]

    with pytest.raises(TraceError):
        vmap(program)(fixed(eg, VALUES))


def test_a_number_under_a_mask_can_be_written_while_tracing() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        y[x > 0] = 0.0
        y[:1][x[:1] > -10] = 5.0
        return y

    x = fixed(eg, VALUES)
    assert_same(plain(vmap(program)(x)), plain(eg.stack([program(row) for row in x])))


def test_an_index_can_be_traced() -> None:
    x, i = fixed(eg, VALUES), eg.tensor([1, -1])
    found = vmap(lambda row, k: row[k], in_dims=(0, 0))(x, i)
    assert_same(plain(found), np.array(VALUES)[[0, 1], [1, -1]])


# -- sums at repeated places --------------------------------------------------------------------


@pytest.mark.parametrize("extent", [3, 700])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_many_rows_at_few_places(extent: int, dtype: str) -> None:
    """Long sums go another way than short ones; both add up the same."""
    rng = np.random.default_rng(0)
    places = rng.integers(0, extent, 500)
    rows = rng.integers(-3, 4, (500, 64)).astype(dtype)
    expected = np.zeros((extent, 64), dtype)
    np.add.at(expected, places, rows)
    out = eg.zeros(extent, 64, dtype=getattr(eg, dtype))
    found = out.index_add(0, eg.from_numpy(places), eg.from_numpy(rows))
    assert (found.array() == expected).all()


def test_sums_are_the_same_on_every_run() -> None:
    weight = eg.randn(5, 400, requires_grad=True)
    places = eg.randint(0, 5, (300,))
    gradients = []
    for _ in range(3):
        (eg.embedding(weight, places) * weight.detach()[places]).sum().backward()
        gradients.append(weight.grad.array().tobytes())
        weight.grad = None
    assert len(set(gradients)) == 1


def test_writes_in_place_take_no_copy() -> None:
    table = eg.zeros(1000, 100)
    places, rows = eg.tensor([3, 999]), eg.ones(2, 100)
    gc.collect()  # what other tests left behind
    LEDGER.peak = before = LEDGER.live
    table.index_add_(0, places, rows)
    table.index_copy_(0, places, rows)
    table[places] = rows
    table[places] = 2.0
    table.scatter_(0, places[:, None], 1.0)
    table[5] = rows[0]
    assert LEDGER.live == before
    assert LEDGER.peak - before < 2000
