"""Samples of movement that needs a copy: ``flip``, ``roll``, triangles, repetition, padding."""

from __future__ import annotations

import numpy as np

from evergrad.ops.composite.padding import pad
from evergrad.testing.samples import booleans, complex_normal, integers, normal, sample

__all__: list[str] = []  # samples are registered, nothing is exported

sample("flip", lambda ns, x: ns.flip(x, (0,)), normal(3, 2), reference=lambda x: x[::-1])
sample("flip", lambda ns, x: x.flip(0, -1), normal(2, 2, 2), reference=lambda x: np.flip(x, (0, 2)))
sample("flip", lambda ns, x: x.flip(()), normal(2, 2), label="no dimension")
sample("flip", lambda ns, x: x.flip(0), normal(), label="number")
sample("flip", lambda ns, x: ns.fliplr(x), complex_normal(2, 3), label="fliplr",
       reference=np.fliplr)  # fmt: skip
sample("flip", lambda ns, x: ns.flipud(x), integers(0, 9, 3), label="flipud", reference=np.flipud)
for turns in (1, 2, 3):
    sample("flip", lambda ns, x, k=turns: ns.rot90(x, k, (0, 2)), normal(2, 1, 3),
           reference=lambda x, k=turns: np.rot90(x, k, (0, 2)), label=f"rot90 {turns}")  # fmt: skip

sample("roll", lambda ns, x: ns.roll(x, 1, 0), normal(3, 2), reference=lambda x: np.roll(x, 1, 0))
sample("roll", lambda ns, x: x.roll((-1, 3), (0, -1)), normal(3, 2),
       reference=lambda x: np.roll(x, (-1, 3), (0, 1)))  # fmt: skip
sample("roll", lambda ns, x: ns.roll(x, 2), normal(2, 3), reference=lambda x: np.roll(x, 2),
       label="flat")  # fmt: skip
sample("roll", lambda ns, x: x.roll((1, 2), (0, 0)), normal(4), label="one dimension twice")
sample("roll", lambda ns, x: x.roll(1, 0), normal(0, 2), label="empty")

for name, cut in (("tril", np.tril), ("triu", np.triu)):
    sample(name, lambda ns, x, name=name: getattr(ns, name)(x), normal(3, 3), reference=cut)
    sample(name, lambda ns, x, name=name: getattr(x, name)(-1), normal(2, 2, 3),
           reference=lambda x, cut=cut: cut(x, -1))  # fmt: skip
    sample(name, lambda ns, x, name=name: getattr(x, name)(diagonal=1), normal(3, 2),
           reference=lambda x, cut=cut: cut(x, 1), label="above")  # fmt: skip
    sample(name, lambda ns, x, name=name: getattr(x, name)(), booleans(3, 3), label="bool")
    sample(name, lambda ns, x, name=name: getattr(x, name)(), normal(0, 3), label="empty")
    sample(name, lambda ns, x, name=name: getattr(x * 1, name + "_")(), normal(3, 3),
           label="in place")  # fmt: skip

# -- repetition and shuffling, by rows of views and a copy --------------------------------------

sample("clone", lambda ns, x: x.repeat(2, 3), normal(2, 1), label="repeat",
       reference=lambda x: np.tile(x, (2, 3)))  # fmt: skip
sample("clone", lambda ns, x: x.repeat(2, 1, 0), normal(2, 1), label="repeat to nothing")
sample("clone", lambda ns, x: ns.tile(x, (2,)), normal(2, 2), label="tile",
       reference=lambda x: np.tile(x, 2))  # fmt: skip
sample("clone", lambda ns, x: ns.repeat_interleave(x, 2, dim=1), normal(2, 2), label="interleave",
       reference=lambda x: np.repeat(x, 2, 1))  # fmt: skip
sample("clone", lambda ns, x: x.repeat_interleave(3), normal(2, 2), label="interleave flat",
       reference=lambda x: np.repeat(x, 3))  # fmt: skip
sample("expand", lambda ns, x, y: ns.meshgrid(x, y, indexing="xy"), normal(2), normal(3, seed=1),
       label="meshgrid", reference=np.meshgrid)  # fmt: skip
sample("cat", lambda ns, x, y: ns.cartesian_prod(x, y), normal(2), normal(3, seed=1),
       label="cartesian_prod")  # fmt: skip
sample("expand", lambda ns, x, y: ns.broadcast_tensors(x, y), normal(2, 1), normal(3, seed=1),
       label="broadcast_tensors", reference=np.broadcast_arrays)  # fmt: skip
sample("index", lambda ns, x: ns.combinations(x, 2), normal(4), label="combinations")
sample("clone", lambda ns, x: ns.pixel_shuffle(x, 2), normal(1, 4, 2, 3), label="pixel_shuffle")
sample("clone", lambda ns, x: ns.pixel_unshuffle(x, 2), normal(1, 1, 4, 2),
       label="pixel_unshuffle")  # fmt: skip
sample("clone", lambda ns, x: ns.channel_shuffle(x, 2), normal(1, 4, 2, 2),
       label="channel_shuffle")  # fmt: skip

# -- padding ------------------------------------------------------------------------------------

sample("pad_slice", lambda ns, x: pad(x, (1, 2, 0, 1)), normal(2, 3), label="pad", torch=False,
       reference=lambda x: np.pad(x, ((0, 1), (1, 2))))  # fmt: skip
sample("pad_slice", lambda ns, x: pad(x, (-1, 2)), normal(2, 3), label="pad and crop", torch=False,
       reference=lambda x: np.pad(x[:, 1:], ((0, 0), (0, 2))))  # fmt: skip
sample("update", lambda ns, x: pad(x, (1, 0, 2, 0), value=1.5), normal(2, 3), label="pad value",
       torch=False,
       reference=lambda x: np.pad(x, ((2, 0), (1, 0)), constant_values=1.5))  # fmt: skip
for ours, theirs in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")):
    sample("index", lambda ns, x, mode=ours: pad(x, (2, 1, 0, 1), mode), normal(1, 2, 3),
           reference=lambda x, mode=theirs: np.pad(x, ((0, 0), (0, 1), (2, 1)), mode),
           label=f"pad {ours}", torch=False)  # fmt: skip
