"""Samples of the rows that move elements: views, their transposes, and ``cat``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.views import ViewChain
from evergrad.ops.rows.movement.slices import PAD_SLICE, SLICE
from evergrad.ops.rows.movement.strided import DIAGONAL, DIAGONAL_SCATTER, FOLD
from evergrad.ops.surface.view_forms import UPDATE
from evergrad.testing.samples import booleans, complex_normal, integers, normal, sample

if TYPE_CHECKING:
    from evergrad.core.tensor import Array, Tensor

# -- reshape ------------------------------------------------------------------------------------

sample("reshape", lambda ns, x: x.reshape(3, 2), normal(2, 3), reference=lambda x: x.reshape(3, 2))
sample("reshape", lambda ns, x: ns.reshape(x, (-1,)), normal(2, 3), reference=np.ravel)
sample("reshape", lambda ns, x: x.reshape(2, -1, 2), normal(4, 3))
sample("reshape", lambda ns, x: x.t().reshape(6), normal(2, 3), reference=lambda x: x.T.ravel(),
       label="copy")  # fmt: skip
sample("reshape", lambda ns, x: x.reshape(1, 1), normal())
sample("reshape", lambda ns, x: x.reshape(()), normal(1, 1), reference=lambda x: x.reshape(()))
sample("reshape", lambda ns, x: x.reshape(3, 0, 2), normal(0, 2))
sample("reshape", lambda ns, x: x.view(2, 6), normal(2, 3, 2), label="view", any_layout=False)
sample("reshape", lambda ns, x: x.flatten(1), normal(2, 3, 2), label="flatten")
sample("reshape", lambda ns, x: x.squeeze(-1), normal(2, 3, 1), label="squeeze")
sample("reshape", lambda ns, x: x.squeeze(), normal(1, 3, 1), label="squeeze all",
       reference=np.squeeze)  # fmt: skip
sample("reshape", lambda ns, x: x.squeeze((0, 2)), normal(1, 3, 1), label="squeeze two")
sample("reshape", lambda ns, x: x.unsqueeze(-2), normal(2, 3), label="unsqueeze",
       reference=lambda x: x[:, None])  # fmt: skip
sample("reshape", lambda ns, x: x.unflatten(1, (2, -1)), normal(2, 6), label="unflatten")
sample("reshape", lambda ns, x: x.ravel(), complex_normal(2, 2), label="ravel complex")
sample("reshape", lambda ns, x: x.reshape_as(ns.zeros(3, 2)), booleans(2, 3), label="bool")

sample("view_dtype", lambda ns, x: x.view(ns.int64), normal(2, 3), dtypes=(),
       reference=lambda x: x.view(np.int64), any_layout=False)  # fmt: skip
sample("view_dtype", lambda ns, x: x.view(ns.int32), integers(-5, 5, 2, 3), label="narrower",
       reference=lambda x: x.view(np.int32), any_layout=False)  # fmt: skip
sample("view_dtype", lambda ns, x: x.view(ns.int64), integers(-5, 5, 2, 4).astype(np.int32),
       label="wider", reference=lambda x: x.view(np.int64), any_layout=False)  # fmt: skip

# -- permute ------------------------------------------------------------------------------------

sample("permute", lambda ns, x: x.permute(2, 0, 1), normal(2, 3, 2),
       reference=lambda x: x.transpose(2, 0, 1))  # fmt: skip
sample("permute", lambda ns, x: ns.permute(x, (-1, 0)), normal(2, 3), reference=np.transpose)
sample("permute", lambda ns, x: x.permute(()), normal())
sample("permute", lambda ns, x: x.transpose(-1, 0), normal(2, 3, 2), label="transpose",
       reference=lambda x: x.swapaxes(0, 2))  # fmt: skip
sample("permute", lambda ns, x: ns.movedim(x, (0, 1), (-1, 0)), normal(2, 3, 2), label="movedim",
       reference=lambda x: np.moveaxis(x, (0, 1), (-1, 0)))  # fmt: skip
sample("permute", lambda ns, x: ns.swapaxes(x, 0, 1), normal(2, 0), label="empty")
sample("permute", lambda ns, x: x.t(), complex_normal(2, 3), label="t")
sample("permute", lambda ns, x: x.mT, integers(-5, 5, 2, 3, 2), label="mT",
       reference=lambda x: x.swapaxes(1, 2))  # fmt: skip

# -- expand -------------------------------------------------------------------------------------

sample("expand", lambda ns, x: x.expand(3, 4), normal(3, 1),
       reference=lambda x: np.broadcast_to(x, (3, 4)))  # fmt: skip
sample("expand", lambda ns, x: x.expand(2, -1, 3), normal(2, 1),
       reference=lambda x: np.broadcast_to(x, (2, 2, 3)))  # fmt: skip
sample("expand", lambda ns, x: x.expand(2, 2), normal())
sample("expand", lambda ns, x: x.expand(0, 3), normal(1, 3), label="to nothing")
sample("expand", lambda ns, x: ns.broadcast_to(x, (2, 0)), normal(1, 0), label="empty")
sample("expand", lambda ns, x: x.expand_as(ns.zeros(2, 3)), normal(3), label="as another")
sample("expand", lambda ns, x: x.t().expand(2, 3, 2), normal(2, 3), label="strided")

# -- slices and their transpose -----------------------------------------------------------------

sample("slice", lambda ns, x: ns.narrow(x, 1, 1, 2), normal(2, 4), reference=lambda x: x[:, 1:3])
sample("slice", lambda ns, x: ns.narrow(x, -1, -3, 2), normal(2, 4), reference=lambda x: x[:, 1:3])
sample("slice", lambda ns, x: x.narrow(0, 1, 0), normal(2, 3), label="nothing")
sample("slice", lambda ns, x: ns.select(x, 1, -1), normal(2, 3, 2), label="select",
       reference=lambda x: x[:, -1])  # fmt: skip
sample("slice", lambda ns, x: x.select(0, 1), normal(3), label="select one",
       reference=lambda x: x[1])  # fmt: skip


def _lay_into(g: Tensor, slices: object, shape: object) -> object:
    return bind(PAD_SLICE, g, slices=slices, shape=shape)


sample("pad_slice", lambda ns, g: _lay_into(g, ((1, 3, 1), (0, 3, 2)), (4, 3)), normal(2, 2),
       reference=lambda g: _laid((4, 3), np.s_[1:3, ::2], g), torch=False)  # fmt: skip
sample("pad_slice", lambda ns, g: _lay_into(g, (1,), (3, 2)), normal(2), label="one index",
       reference=lambda g: _laid((3, 2), 1, g), torch=False)  # fmt: skip
sample("pad_slice", lambda ns, g: _lay_into(g, (1, 0), (2, 2)), normal(), label="one element",
       reference=lambda g: _laid((2, 2), (1, 0), g), torch=False)  # fmt: skip
sample("pad_slice", lambda ns, g: _lay_into(g, ((2, 2, 1),), (3, 2)), normal(0, 2), label="nothing",
       torch=False)  # fmt: skip


def _laid(
    shape: tuple[int, ...], place: tuple[int | slice, int | slice] | int, value: Array
) -> Array:
    out = np.zeros(shape)
    out[place] = value
    return out


# -- diagonals ----------------------------------------------------------------------------------

sample("diagonal", lambda ns, x: ns.diagonal(x), normal(3, 3), reference=np.diagonal)
sample("diagonal", lambda ns, x: x.diagonal(1), normal(2, 4), reference=lambda x: x.diagonal(1))
sample("diagonal", lambda ns, x: x.diagonal(-2), normal(3, 2), reference=lambda x: x.diagonal(-2))
sample("diagonal", lambda ns, x: x.diagonal(5), normal(2, 2), label="outside")
sample("diagonal", lambda ns, x: x.diagonal(1, 0, 2), normal(2, 3, 4), label="of two dimensions",
       reference=lambda x: x.diagonal(1, 0, 2))  # fmt: skip
sample("diagonal", lambda ns, x: x.diagonal(0, -1, -2), normal(2, 3, 3), label="negative dims")

sample("diagonal_embed", lambda ns, x: ns.diag_embed(x), normal(2, 3))
sample("diagonal_embed", lambda ns, x: ns.diag_embed(x, 1), normal(2, 2))
sample("diagonal_embed", lambda ns, x: ns.diag_embed(x, -1, 0, 2), normal(2, 2))
sample("diagonal_embed", lambda ns, x: ns.diag(x), normal(3), reference=np.diag, label="diag")
sample("diagonal_embed", lambda ns, x: ns.diag(x, -1), normal(3), label="diag below",
       reference=lambda x: np.diag(x, -1))  # fmt: skip
sample("diagonal_embed", lambda ns, x: ns.diagflat(x, 1), normal(2, 2), label="diagflat",
       reference=lambda x: np.diagflat(x, 1))  # fmt: skip
sample("diagonal_embed", lambda ns, x: ns.diagflat(x), normal(), label="diagflat of one")
sample("diagonal_embed",
       lambda ns, g: bind(DIAGONAL_SCATTER, g, offset=1, dim1=0, dim2=1, shape=(2, 4)), normal(2),
       label="not square", torch=False)  # fmt: skip

# -- windows ------------------------------------------------------------------------------------

sample("unfold_dim", lambda ns, x: x.unfold(0, 3, 1), normal(5),
       reference=lambda x: np.lib.stride_tricks.sliding_window_view(x, 3))  # fmt: skip
sample("unfold_dim", lambda ns, x: x.unfold(1, 2, 3), normal(2, 6))
sample("unfold_dim", lambda ns, x: x.unfold(-2, 2, 1), normal(3, 2))
sample("unfold_dim", lambda ns, x: x.unfold(0, 1, 1), normal(), label="of one")
sample("unfold_dim", lambda ns, x: x.unfold(0, 0, 1), normal(3), label="empty windows")

sample("fold_dim", lambda ns, g: bind(FOLD, g, dim=0, size=3, step=1, shape=(5,)), normal(3, 3),
       torch=False)  # fmt: skip
sample("fold_dim", lambda ns, g: bind(FOLD, g, dim=1, size=2, step=3, shape=(2, 6)),
       normal(2, 2, 2), label="with gaps", torch=False)  # fmt: skip

# -- strides ------------------------------------------------------------------------------------

sample("as_strided", lambda ns, x: ns.as_strided(x, (2, 2), (3, 1), 1), normal(6),
       any_layout=False)  # fmt: skip
sample("as_strided", lambda ns, x: x.as_strided((3, 2), (1, 1)), normal(2, 2), label="overlapping",
       any_layout=False)  # fmt: skip
sample("as_strided", lambda ns, x: x.as_strided((2, 3), (0, 1)), normal(3), label="repeated",
       any_layout=False)  # fmt: skip
sample("as_strided", lambda ns, x: x.as_strided((), (), 2), normal(4), label="one element",
       any_layout=False)  # fmt: skip
sample("as_strided", lambda ns, x: x.as_strided((0, 2), (1, 1)), normal(3), label="nothing",
       any_layout=False)  # fmt: skip

# -- complex numbers ----------------------------------------------------------------------------

sample("view_as_real", lambda ns, z: ns.view_as_real(z), complex_normal(2, 3),
       reference=lambda z: np.stack((z.real, z.imag), -1))  # fmt: skip
sample("view_as_real", lambda ns, z: ns.view_as_real(z.t()), complex_normal(2, 3), label="strided")
sample("view_as_real", lambda ns, z: ns.view_as_real(z), complex_normal())
sample("view_as_complex", lambda ns, x: ns.view_as_complex(x), normal(3, 2), dtypes=("float32",),
       reference=lambda x: x[:, 0] + 1j * x[:, 1], any_layout=False)  # fmt: skip
sample("view_as_complex", lambda ns, x: ns.view_as_complex(x), normal(2), dtypes=("float32",),
       any_layout=False)  # fmt: skip
sample("real", lambda ns, z: ns.real(z), complex_normal(2, 3), reference=np.real)
sample("real", lambda ns, z: z.t().real, complex_normal(2, 3), label="strided")
sample("imag", lambda ns, z: ns.imag(z), complex_normal(2, 3), reference=np.imag)
sample("imag", lambda ns, z: z.imag, complex_normal())

# -- a write as a function ----------------------------------------------------------------------


def _written(base: object, value: object, *view_ops: Any) -> object:
    return bind(UPDATE, base, value, chain=ViewChain(tuple(view_ops)))


sample("update", lambda ns, x, y: ns.select_scatter(x, y, 1, -1), normal(2, 3), normal(2, seed=1))
sample("update", lambda ns, x, y: ns.slice_scatter(x, y, 1, 0, None, 2), normal(2, 3),
       normal(2, 2, seed=1))  # fmt: skip
sample("update", lambda ns, x, y: ns.slice_scatter(x, y, 0, 2), normal(2, 3), normal(0, 3))
sample("update", lambda ns, x, y: ns.diagonal_scatter(x, y, 1), normal(3, 3), normal(2, seed=1))
sample("update", lambda ns, x, y: ns.diagonal_scatter(x, y, 0, 2, 0), normal(2, 2, 2),
       normal(2, 2, seed=1))  # fmt: skip
sample("update", lambda ns, x, y: _written(x, y), normal(2, 2), normal(2, 2, seed=1), torch=False,
       reference=lambda x, y: y, label="whole")  # fmt: skip
sample("update",
       lambda ns, x, y: _written(
           x, y, (SLICE, {"slices": ((0, 2, 1),)}), (DIAGONAL, {"offset": 0, "dim1": 0, "dim2": 1})
       ),
       normal(3, 2), normal(2, seed=1), torch=False, label="two steps")  # fmt: skip

# -- joining ------------------------------------------------------------------------------------

sample("cat", lambda ns, x, y: ns.cat((x, y)), normal(2, 3), normal(1, 3, seed=1),
       reference=lambda x, y: np.concatenate((x, y)))  # fmt: skip
sample("cat", lambda ns, x, y: ns.cat([x, y, x], -1), normal(2, 2), normal(2, 1, seed=1),
       reference=lambda x, y: np.concatenate((x, y, x), -1))  # fmt: skip
sample("cat", lambda ns, x, y: ns.cat((x, y), 1), normal(2, 0), normal(2, 3, seed=1), label="empty")
sample("cat", lambda ns, x: ns.cat((x,)), normal(3), label="one")
sample("cat", lambda ns, x, y: ns.cat((x, y)), normal(3), integers(0, 9, 2), label="promoted")
sample("cat", lambda ns, x, y: ns.stack((x, y), 1), normal(2, 3), normal(2, 3, seed=1),
       label="stack", reference=lambda x, y: np.stack((x, y), 1))  # fmt: skip
sample("cat", lambda ns, x, y: ns.stack((x, y)), normal(), normal(seed=1), label="stack numbers")
sample("cat", lambda ns, x, y: ns.hstack((x, y)), normal(2, 2), normal(2, 1, seed=1),
       label="hstack", reference=lambda x, y: np.hstack((x, y)))  # fmt: skip
sample("cat", lambda ns, x, y: ns.vstack((x, y)), normal(2, 2), normal(2, seed=1), label="vstack",
       reference=lambda x, y: np.vstack((x, y)))  # fmt: skip
sample("cat", lambda ns, x, y: ns.dstack((x, y)), normal(2), normal(2, seed=1), label="dstack",
       reference=lambda x, y: np.dstack((x, y)))  # fmt: skip
sample("cat", lambda ns, x, y: ns.column_stack((x, y)), normal(2), normal(2, 2, seed=1),
       label="column_stack", reference=lambda x, y: np.column_stack((x, y)))  # fmt: skip
sample("cat", lambda ns, x, y: ns.block_diag(x, y), normal(2, 2), normal(3, seed=1),
       label="block_diag")  # fmt: skip
