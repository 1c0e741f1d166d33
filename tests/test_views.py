"""Views share memory: what is a view, what it costs, and random programs that write to them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evergrad as eg
from evergrad.memory.ledger import LEDGER
from twins import agree, assert_same, leaf, plain, refuse

VALUES = (np.arange(24.0).reshape(2, 3, 4) - 11.5).tolist()
WEIGHTS = (np.sin(np.arange(24.0)).reshape(2, 3, 4)).tolist()

# -- what is a view -----------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "number": lambda ns, x: x[0],
    "slice": lambda ns, x: x[:, 1:],
    "element": lambda ns, x: x[1, 2, 3],
    "whole": lambda ns, x: x[:],
    "ellipsis": lambda ns, x: x[..., 0],
    "new dimension": lambda ns, x: x[:, None],
    "step": lambda ns, x: x[..., ::2],
    "0-d index": lambda ns, x: x[ns.tensor(1)],
    "view": lambda ns, x: x.view(6, 4),
    "reshape": lambda ns, x: x.reshape(2, -1),
    "transpose": lambda ns, x: x.transpose(0, 2),
    "permute": lambda ns, x: x.permute(2, 0, 1),
    "movedim": lambda ns, x: x.movedim(0, -1),
    "T": lambda ns, x: x.mT,
    "expand": lambda ns, x: x[:, :1].expand(2, 5, 4),
    "squeeze": lambda ns, x: x[:1].squeeze(0),
    "unsqueeze": lambda ns, x: x.unsqueeze(1),
    "narrow": lambda ns, x: x.narrow(2, 1, 2),
    "select": lambda ns, x: x.select(1, -1),
    "diagonal": lambda ns, x: x.diagonal(1, 1, 2),
    "unfold": lambda ns, x: x.unfold(2, 2, 1),
    "flatten": lambda ns, x: x.flatten(),
    "unflatten": lambda ns, x: x.unflatten(2, (2, 2)),
    "as_strided": lambda ns, x: x.as_strided((2, 2), (3, 1), 2),
    "split": lambda ns, x: x.split(2, 1)[1],
    "chunk": lambda ns, x: x.chunk(2, -1)[1],
    "tensor_split": lambda ns, x: ns.tensor_split(x, 2, 1)[0],
    "hsplit": lambda ns, x: ns.hsplit(x, 3)[2],
    "unbind": lambda ns, x: x.unbind(2)[3],
    "iteration": lambda ns, x: list(x)[1],
    "broadcast": lambda ns, x: ns.broadcast_tensors(x, ns.zeros(1))[0],
    "detach": lambda ns, x: x.detach(),
}
COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda ns, x: x[ns.tensor([0])],
    "list": lambda ns, x: x[[0, 1]],
    "mask": lambda ns, x: x[x > 0],
    "truth": lambda ns, x: x[True],
    "clone": lambda ns, x: x.clone(),
    "flip": lambda ns, x: x.flip(0),
    "roll": lambda ns, x: x.roll(1, 0),
    "repeat": lambda ns, x: x.repeat(1, 1, 1),
    "tile": lambda ns, x: ns.tile(x, (1,)),
    "reshape": lambda ns, x: x.transpose(0, 2).reshape(-1),
    "rot90": lambda ns, x: ns.rot90(x, 0),
    "tril": lambda ns, x: x.tril(),
    "diag": lambda ns, x: ns.diag(x[0]),
    "slice_scatter": lambda ns, x: ns.slice_scatter(x, x[:1], 0, 1),
    "masked_fill": lambda ns, x: x.masked_fill(x > 0, 0.0),
    "index_select": lambda ns, x: x.index_select(0, ns.tensor([0, 1])),
    "pixel_shuffle": lambda ns, x: ns.pixel_shuffle(x.reshape(1, 4, 2, 3), 1),
}


def _written_through(ns: Any, look: Callable[[Any, Any], Any]) -> Any:
    """What the tensor holds after all that a view (or copy) of it shows was overwritten."""
    x = ns.tensor(VALUES)
    seen = look(ns, x)
    if not any(n > 1 and s == 0 for n, s in zip(seen.shape, seen.stride(), strict=True)):
        seen.fill_(99.0)
    return x, seen


@pytest.mark.parametrize("name", [*VIEWS, *(f"copy: {name}" for name in COPIES)])
def test_views_and_copies_are_those_of_torch(name: str, torch: ModuleType) -> None:
    look = COPIES[name[6:]] if name.startswith("copy: ") else VIEWS[name]
    agree(lambda ns: _written_through(ns, look), torch)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_takes_no_memory(name: str) -> None:
    x = eg.tensor(VALUES)
    VIEWS[name](eg, x)
    gc.collect()  # what other tests left behind
    before = LEDGER.live
    seen = VIEWS[name](eg, x)
    assert LEDGER.live == before
    assert seen._storage is x._storage
    assert np.shares_memory(seen.array(), x.array())


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_the_base_is_seen_by_the_view(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = ns.tensor(VALUES)
        seen = VIEWS[name](ns, x)
        x.mul_(2.0)
        return seen

    agree(program, torch)


# -- random programs ----------------------------------------------------------------------------


def _sizes(t: Any) -> tuple[int, ...]:
    return tuple(t.shape)


def _cut(t: Any, k: int, n: int) -> Any:
    """A part of one dimension that is not empty."""
    dim = k % len(t.shape)
    extent = t.shape[dim]
    start = n % extent
    return t.narrow(dim, start, 1 + (k + n) % (extent - start))


def _matrix_diagonal(t: Any, k: int, n: int) -> Any:
    return t.diagonal(0, k % t.dim(), (k + 1) % t.dim()) if t.dim() > 1 else t.unsqueeze(0)


LOOKS: dict[str, Callable[[Any, int, int], Any]] = {
    "number": lambda t, k, n: t[k % t.shape[0]] if t.dim() else t[None],
    "last": lambda t, k, n: t[..., n % t.shape[-1]] if t.dim() else t[...],
    "cut": lambda t, k, n: _cut(t, k, n) if t.dim() else t.view(()),
    "step": lambda t, k, n: t[k % 2 :: 1 + n % 2] if t.dim() and t.shape[0] > 1 else t[...],
    "swap": lambda t, k, n: t.transpose(k % t.dim(), n % t.dim()) if t.dim() else t[None],
    "flat": lambda t, k, n: t.view(-1) if t.is_contiguous() else t.mT if t.dim() > 1 else t[...],
    "new dimension": lambda t, k, n: t.unsqueeze(k % (t.dim() + 1)) if t.dim() < 4 else t.squeeze(),
    "diagonal": _matrix_diagonal,
}
WRITES: dict[str, Callable[[Any, Any, int], Any]] = {
    "scale": lambda t, w, n: t.mul_(0.5 + n % 3),
    "scale by a leaf": lambda t, w, n: t.mul_(w.view(-1)[n % 24]),
    "add": lambda t, w, n: t.add_(w.view(-1)[: t.numel()].view(t.shape)),
    "sine": lambda t, w, n: t.sin_(),
    "fill": lambda t, w, n: t.fill_(float(n % 5)),
    "copy": lambda t, w, n: t.copy_(w.view(-1)[-1]),
    "assign": lambda t, w, n: t.__setitem__(..., w.view(-1)[n % 24] * 2),
    "assign a part": lambda t, w, n: t.__setitem__(n % t.shape[0] if t.dim() else ..., 1.5),
    "assign itself": lambda t, w, n: t.__setitem__(..., t * 2),
    "mask": lambda t, w, n: t.__setitem__(t > 0, w.view(-1)[0]),
    "in place": lambda t, w, n: t.__iadd__(1.0),
}

steps = st.lists(
    st.tuples(
        st.sampled_from([*LOOKS, *WRITES]), st.integers(0, 7), st.integers(0, 7), st.integers(0, 7)
    ),
    max_size=14,
)


def _run(ns: Any, program: list[tuple[str, int, int, int]]) -> Any:
    """All tensors of a program of views and writes, and the gradients of what it started from."""
    x, w = leaf(ns, VALUES), leaf(ns, WEIGHTS)
    seen = [x * 1.5]
    for name, which, k, n in program:
        tensor = seen[which % len(seen)]
        if name in LOOKS:
            seen.append(LOOKS[name](tensor, k, n))
        else:
            WRITES[name](tensor, w, n)
    loss = sum(((k + 1) * t * t).sum() for k, t in enumerate(seen))
    return seen, ns.autograd.grad(loss, [x, w], allow_unused=True, materialize_grads=True)


@given(program=steps)
def test_views_and_writes_agree_with_torch(program: Any, torch: ModuleType) -> None:
    """Values of every view, and gradients, after writes through any of them."""
    theirs = plain(_run(torch, program))
    ours = plain(_run(eg, program))
    assert_same(ours, theirs, 1e-7)


@given(program=steps)
def test_views_in_a_program_take_no_memory(program: Any) -> None:
    x = eg.tensor(VALUES)
    seen = [x]
    gc.collect()
    before = LEDGER.live
    for name, which, k, n in program:
        if name in LOOKS:
            seen.append(LOOKS[name](seen[which % len(seen)], k, n))
    assert LEDGER.live == before
    assert all(t._storage is x._storage for t in seen)


def test_parts_of_an_unsafe_split_may_be_written(torch: ModuleType) -> None:
    """Each part is a view like any other; those of ``split`` may not, as in PyTorch."""

    def program(ns: Any) -> Any:
        x = leaf(ns, VALUES)
        y = x * 2
        first, second = y.unsafe_split(1) if ns is eg else (y[:1], y[1:])
        first.mul_(3.0)
        second.sin_()
        return y, first, ns.autograd.grad((y * y).sum() + first.sum(), x)

    agree(program, torch)


# -- a handle that becomes a view ---------------------------------------------------------------

BECOMING: dict[str, Callable[[Any, Any, Any], Any]] = {
    "unsqueeze_": lambda ns, x, w: x.unsqueeze_(1).mul_(2),
    "squeeze_": lambda ns, x, w: x[:1].squeeze_(0).mul_(w[0]),
    "squeeze_ all": lambda ns, x, w: x.squeeze_(),
    "transpose_": lambda ns, x, w: x.transpose_(0, 2).sin_(),
    "swapaxes_": lambda ns, x, w: x.swapaxes_(0, -1),
    "twice": lambda ns, x, w: x.transpose_(0, 1).unsqueeze_(0).squeeze_(0).add_(1),
    "t_": lambda ns, x, w: x[0].t_().mul_(w[1].t()),
}


@pytest.mark.parametrize("name", BECOMING)
def test_changed_in_place(name: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, VALUES), leaf(ns, WEIGHTS)
        y = x * 2
        result = BECOMING[name](ns, y, w)
        loss = (result * result).sum() + y.sum()
        return y, result, ns.autograd.grad(loss, [x, w], allow_unused=True, materialize_grads=True)

    agree(program, torch)


def test_views_made_before_still_follow(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, VALUES)
        y = x * 2
        row = y[0]
        y.transpose_(0, 1)
        row[1] = 5.0
        y[0, 0] *= 3
        return y, row, ns.autograd.grad((y * y).sum() + row.sum(), x)

    agree(program, torch)


def test_a_leaf_is_not_changed_in_place(torch: ModuleType) -> None:
    refuse(lambda ns: leaf(ns, VALUES).unsqueeze_(0), torch, match="leaf Variable")


def test_a_leaf_may_change_without_gradients(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = leaf(ns, VALUES)
        with ns.no_grad():
            x.unsqueeze_(0)
        (x * x).sum().backward()
        return x, x.grad

    agree(program, torch)


# -- writes through a view, as functions --------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda ns, x, w: ns.select_scatter(x, w[:, 0], 1, -1),
        lambda ns, x, w: ns.slice_scatter(x, w[..., :2], 2, 0, None, 2),
        lambda ns, x, w: ns.slice_scatter(x, w[:1], start=1),
        lambda ns, x, w: ns.diagonal_scatter(x, w[:, 0].t(), 0, 0, 1),
    ],
)
def test_scatter_forms(function: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = leaf(ns, VALUES), leaf(ns, WEIGHTS)
        y = function(ns, x, w)
        return y, ns.autograd.grad((y * y).sum(), [x, w])

    agree(program, torch)


def test_scatter_forms_want_the_right_size(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        return ns.select_scatter(ns.zeros(2, 3), ns.zeros(2), 0, 1)

    refuse(program, torch, match="expected src to have a size equal to the slice of self")


FRESH: dict[str, Callable[[Any, Any], Any]] = {
    "max": lambda ns, x: x.max(1).values,
    "min": lambda ns, x: x.min(dim=1)[0],
    "median": lambda ns, x: x.median(1).values,
    "mode": lambda ns, x: x.mode(1)[0],
    "kthvalue": lambda ns, x: x.kthvalue(1, 1)[0],
    "quantile": lambda ns, x: x.quantile(0.5, dim=1),
    "argmax": lambda ns, x: x.argmax(1),
    "argmin of all": lambda ns, x: x.argmin(),
    "argsort": lambda ns, x: x[0].argsort(),
    "reshape that copies": lambda ns, x: x.t().reshape(-1),
    "flatten that copies": lambda ns, x: x.t().flatten(),
    "pixel_shuffle": lambda ns, x: ns.nn.functional.pixel_shuffle(ns.ones(1, 4, 2, 2), 2),
    "diff of no order": lambda ns, x: x.diff(n=0),
}


@pytest.mark.parametrize("name", FRESH)
def test_results_on_new_memory_are_no_views(name: str, torch: ModuleType) -> None:
    """Made without recording they can be written with recording, as in PyTorch."""
    found = []
    for library in (torch, eg):
        x = library.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, -1.0]])
        weight = library.ones((), requires_grad=True)
        with library.no_grad():
            made = FRESH[name](library, x)
        facts = [made._is_view(), made.data_ptr() == x.data_ptr()]
        if made.is_floating_point():
            made *= weight
            made.sum().backward()
            facts.append(weight.grad.item())
        found.append(facts)
    assert found[0] == found[1]


DIM_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "amax": lambda x, dim: x.amax(dim),
    "amin": lambda x, dim: x.amin(dim=dim),
    "any": lambda x, dim: x.any(dim),
    "all": lambda x, dim: x.all(dim=dim, keepdim=True),
    "logsumexp": lambda x, dim: x.logsumexp(dim),
    "sum": lambda x, dim: x.sum(dim),
    "nanmean": lambda x, dim: x.nanmean(dim),
    "std": lambda x, dim: x.std(dim),
    "squeeze": lambda x, dim: x[:1].squeeze(dim),
    "movedim": lambda x, dim: x.movedim(dim, -1),
    "norm": lambda x, dim: x.norm(dim=dim, p=1),
    "count_nonzero": lambda x, dim: x.count_nonzero(dim),
}


@pytest.mark.parametrize("name", DIM_CALLS)
@pytest.mark.parametrize("kind", ["numpy", "tensor"])
def test_dimensions_are_numbers_of_any_kind(name: str, kind: str, torch: ModuleType) -> None:
    found = []
    for library in (torch, eg):
        dim = np.int64(0) if kind == "numpy" else library.tensor(0)
        x = library.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, -1.0]])
        made = DIM_CALLS[name](x, dim)
        found.append((list(made.shape), made.tolist()))
    assert found[0][0] == found[1][0]
    assert np.allclose(found[0][1], found[1][1])


def test_a_tensor_as_fill_value_is_its_number(torch: ModuleType) -> None:
    for name in ("float64", "float16", "int32", "bool", "complex64"):
        kinds = {
            str(library.full((2,), library.ones((), dtype=getattr(library, name))).dtype)
            .rpartition(".")[2]
            for library in (torch, eg)
        }  # fmt: skip
        assert len(kinds) == 1, name
