"""Random reads and writes by index, direct and in the general way: values, strides, versions,
graphs and refusals are the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad.ops.rows.indexing import direct

SHAPES = [(), (3,), (4, 3), (2, 3, 4), (1, 3), (0, 3), (3, 0, 2)]
KINDS = ["float32", "float64", "int64", "bool", "int32", "float16", "uint8"]
LAYOUTS = ["plain", "transposed", "steps", "view", "expanded", "grad", "no_grad leaf"]


def operand(r: random.Random, lib: Any, shape: tuple[int, ...], kind: str, layout: str) -> Any:
    values = np.random.default_rng(r.randrange(1 << 30)).integers(-3, 4, shape)
    if kind in ("uint8", "bool"):
        values = np.abs(values)
    x = lib.tensor(values.astype(kind))
    if layout == "transposed":
        order = tuple(reversed(range(x.ndim)))
        return x.permute(order).contiguous().permute(order)
    if layout == "steps" and x.ndim:
        return lib.cat([x, x])[::2][: shape[0]]
    if layout == "view":
        return x.reshape(1, *shape)[0]
    if layout == "expanded" and x.ndim:
        return x[:1].expand(shape) if shape[0] else x
    if layout in ("grad", "no_grad leaf") and kind.startswith("float"):
        x.requires_grad_()
        return x * 1 if layout == "grad" else x
    return x


def item(r: random.Random, lib: Any, extent: int) -> Any:
    what = r.randrange(11)
    if what < 3:
        return r.randint(-extent - (r.random() < 0.1), max(extent - (r.random() < 0.9), 0))
    if what < 5:
        bounds = [r.choice([None, r.randint(-5, 5)]) for _ in range(2)]
        return slice(*bounds, r.choice([None, None, 1, 2, 3, -1 if r.random() < 0.1 else 2]))
    if what == 5:
        return None
    if what == 6:
        return Ellipsis
    if what == 7:
        kind = r.choice(["int64", "int64", "int32"])
        shape = r.choice([(2,), (2,), (), (2, 2), (0,), (1,)])
        low, high = (-extent, extent) if extent else (0, 1)
        places = np.random.default_rng(r.randrange(99)).integers(low, high, shape)
        return lib.tensor(places.astype(kind))
    if what == 8:
        return lib.tensor(np.random.default_rng(r.randrange(99)).random(extent) > 0.5)
    if what == 9:
        return [r.randint(-extent, max(extent - 1, 0)) for _ in range(r.randrange(3))]
    return r.choice([True, False, np.int64(0), lib.tensor(0), np.array([0])])


def index_of(r: random.Random, lib: Any, shape: tuple[int, ...]) -> Any:
    if r.random() < 0.15:
        return lib.tensor(np.random.default_rng(r.randrange(99)).random(shape) > 0.5)
    items = [item(r, lib, n) for n in shape[: r.randint(1, max(len(shape), 1))]] or [Ellipsis]
    return items[0] if len(items) == 1 and r.random() < 0.7 else tuple(items)


def value_of(r: random.Random, lib: Any, part: Any, kind: str) -> Any:
    what = r.randrange(6)
    if what < 3 or part is None:
        return [0, 2, 1.5, True, -1, float("nan")][r.randrange(6)]
    source = lib.tensor(np.arange(5).astype(r.choice([kind, kind, kind, "float32"])))
    if what == 3:
        return source[r.randrange(5)]
    count = part.numel()
    made = source[:1].expand(max(count, 1))[:count].reshape(part.shape) * 1
    return made[:1] if what == 5 and made.ndim else made


def described(result: Any, sources: tuple[Any, ...] = ()) -> Any:
    array = result.detach().numpy()
    return (
        array.dtype, array.shape, array.tolist(), result.requires_grad, result.is_leaf,
        result.is_contiguous(), result._is_view(), result.stride() if result.numel() > 1 else None,
        [s._version for s in sources],
    )  # fmt: skip


def read(lib: Any, seed: int) -> Any:
    r = random.Random(seed)
    shape, kind, layout = r.choice(SHAPES), r.choice(KINDS), r.choice(LAYOUTS)
    x = operand(r, lib, shape, kind, layout)
    index = index_of(r, lib, shape)
    with lib.set_grad_enabled(r.random() < 0.7):
        try:
            return described(x[index], (x,))
        except (IndexError, ValueError, TypeError, RuntimeError) as error:
            return type(error), str(error)


def write(lib: Any, seed: int) -> Any:
    r = random.Random(seed)
    shape, kind, layout = r.choice(SHAPES), r.choice(KINDS), r.choice(LAYOUTS)
    x = operand(r, lib, shape, kind, layout)
    other = x.detach() if r.random() < 0.3 else x
    index = index_of(r, lib, shape)
    with lib.set_grad_enabled(r.random() < 0.7):
        try:
            part = other.detach()[index]
        except (IndexError, ValueError, TypeError, RuntimeError):
            part = None
        before = x._version
        try:
            x[index] = value_of(r, lib, part, kind)
        except (IndexError, ValueError, TypeError, RuntimeError) as error:
            return type(error), str(error), x.detach().numpy().tolist(), x._version - before
        return described(x), other.detach().numpy().tolist(), x._version - before


@pytest.mark.parametrize("access", [read, write], ids=["read", "write"])
def test_direct_accesses_do_what_the_general_way_does(access: Any, monkeypatch: Any) -> None:
    seeds = range(500)
    for _ in range(2):  # the second time reads are prepared
        found = [access(eg, seed) for seed in seeds]
    with monkeypatch.context() as general:
        general.setattr(direct, "describe", lambda *given: False)
        general.setattr(direct, "masked", lambda *given: None)
        general.setattr(direct, "write", lambda *given: False)
        general.setattr(direct, "write_picked", lambda *given: False)
        expected = [access(eg, seed) for seed in seeds]
    differing = [s for s, a, b in zip(seeds, found, expected, strict=True) if repr(a) != repr(b)]
    assert not differing, (found[differing[0]], expected[differing[0]])


def test_a_direct_write_has_the_line_that_wrote() -> None:
    w = eg.ones(3, requires_grad=True)
    x = eg.ones(3)
    y = w * x
    x[0] = 2.0  # the line
    with pytest.raises(RuntimeError, match="the line"):
        y.sum().backward()


def test_writes_under_no_grad_to_a_leaf_are_seen_by_backward() -> None:
    w = eg.ones(3, requires_grad=True)
    y = w * w
    with eg.no_grad():
        w[w > 0] = 3.0
    assert w._version == 1
    with pytest.raises(RuntimeError, match=r"w\[w > 0\] = 3.0"):
        y.sum().backward()


def test_parts_of_long_chains_of_views() -> None:
    for _ in range(3):
        x = eg.arange(24.0).reshape(4, 6)
        for _ in range(9):
            x = x.t().t()
        parts = [*x.split(2), *x.chunk(2, 1), *x.unbind(1)]
        expected = x.tolist()
        assert parts[0].tolist() == expected[:2] and parts[3].tolist() == [r[3:] for r in expected]
        assert parts[-1].tolist() == [row[-1] for row in expected]
        x[0, 5] = -1.0
        assert parts[-1].tolist()[0] == -1.0
