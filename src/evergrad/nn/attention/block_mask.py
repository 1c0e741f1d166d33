"""Which blocks of queries look at which blocks of keys.

Attention here is dense and reads only ``mask_mod``; the blocks are worked out as in PyTorch, for
programs that look at them (``sparsity``, ``to_dense``, ``kv_num_blocks``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.core import dtypes
from evergrad.core.tensor import Tensor
from evergrad.core.vmap import vmap
from evergrad.errors import ShapeError
from evergrad.nn.attention.mods import MaskMod, indices_of, noop_mask
from evergrad.ops.composite.padding import pad
from evergrad.ops.rows.creation.constants import arange, zeros

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike

_DEFAULT_BLOCK = 128
_LISTS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks",
    "q_indices", "full_q_num_blocks", "full_q_indices",
)  # fmt: skip
_BY_DIMENSION = ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None),
                 (0, None, None, None))  # fmt: skip


def create_mask(
    mod_fn: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: DeviceLike = None,
) -> Tensor:  # fmt: skip
    """The mask of a ``mask_mod`` (or of a ``score_mod``: where scores stay finite), as booleans of
    (B, H, Q_LEN, KV_LEN)."""
    shape = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    function = mod_fn
    if _takes_scores(mod_fn):
        function = lambda b, h, q, kv: ~mod_fn(zeros(()), b, h, q, kv).isneginf()
    for dims in _BY_DIMENSION:
        function = vmap(function, in_dims=dims)
    return function(*indices_of(shape)).to(dtypes.bool_)


def _takes_scores(mod: Callable[..., object]) -> bool:
    required = [
        p
        for p in inspect.signature(mod).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return len(required) == 5


def create_block_mask(
    mask_mod: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: DeviceLike = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_BLOCK,
    _compile: bool = False, separate_full_blocks: bool = True, compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:  # fmt: skip
    """The blocks of a mask: which are wholly visible, which in part, which not at all."""
    if _takes_scores(mask_mod):
        raise AssertionError(
            "create-block_mask requires a mask_mod function! Got a function of five arguments"
        )
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN)
    counts = _counts_by_block(mask, size)
    is_full = (counts == size[0] * size[1]) & separate_full_blocks
    number, indices = _by_row((counts > 0) & ~is_full)
    full_number, full_indices = _by_row(is_full) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(
        number, indices, full_number, full_indices, size, mask_mod, (Q_LEN, KV_LEN)
    )


def _counts_by_block(mask: Tensor, size: tuple[int, int]) -> Tensor:
    """How many places each block allows, (B, H, rows of blocks, columns of blocks)."""
    queries, keys = mask.shape[-2:]
    whole = pad(mask.to(dtypes.int64), (0, -keys % size[1], 0, -queries % size[0]))
    blocks = whole.unflatten(-1, (-1, size[1])).unflatten(-3, (-1, size[0]))
    return blocks.sum((-1, -3))


def _by_row(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of blocks how many are set, and their columns first."""
    numbers = blocks.to(dtypes.int32)
    order = numbers.argsort(dim=-1, descending=True, stable=True)
    return numbers.sum(-1).to(dtypes.int32), order.to(dtypes.int32)


def _dense(num_blocks: Tensor, indices: Tensor) -> Tensor:
    """The blocks that are set, as ones among zeros."""
    columns = indices.shape[-1]
    is_listed = (arange(columns) < num_blocks.unsqueeze(-1)).to(dtypes.int32)
    blank = zeros(*indices.shape, dtype=dtypes.int32)
    return blank.scatter(-1, indices.to(dtypes.int64), is_listed)


def _turned(
    num_blocks: Tensor | None, indices: Tensor | None, wanted: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Blocks listed by row, listed by column."""
    if num_blocks is None or indices is None or not wanted:
        return None, None
    return _by_row(_dense(num_blocks, indices).transpose(-2, -1))


class BlockMask:
    """A mask, and the blocks it consists of, listed by query and by key."""

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None, q_indices: Tensor | None, full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_BLOCK, _DEFAULT_BLOCK),
        mask_mod: MaskMod = noop_mask,
    ) -> None:  # fmt: skip
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks = kv_num_blocks
        self.kv_indices = kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.q_num_blocks = q_num_blocks
        self.q_indices = q_indices
        self.full_q_num_blocks = full_q_num_blocks
        self.full_q_indices = full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_BLOCK, mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None, compute_q_blocks: bool = True,
    ) -> BlockMask:  # fmt: skip
        """From the blocks that each row of queries looks at; those by key are worked out."""
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        number, indices = _turned(kv_num_blocks, kv_indices, compute_q_blocks)
        full_number, full_indices = _turned(full_kv_num_blocks, full_kv_indices, compute_q_blocks)
        rows, columns = kv_indices.shape[-2:]
        lengths = seq_lengths or (rows * size[0], columns * size[1])
        return cls(
            lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, number,
            indices, full_number, full_indices, size, mask_mod or noop_mask,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many places the mask has."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def check_lengths(self, queries: int, keys: int) -> None:
        """The lengths of attention must be those of the mask."""
        if self.seq_lengths != (queries, keys):
            raise ShapeError(
                f"block_mask was created for block_mask.shape={self.shape} but got q_len={queries} "
                f"and kv_len={keys}. Make a new one with create_block_mask."
            )

    def to_dense(self) -> Tensor:
        """The blocks that are visible at least in part, as ones among zeros."""
        partial = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return partial
        return partial | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def sparsity(self) -> float:
        """The share of places in blocks that are not visible, in per cent."""
        computed = int(self.kv_num_blocks.sum().item())
        if self.full_kv_num_blocks is not None:
            computed += int(self.full_kv_num_blocks.sum().item())
        return 100.0 * (1 - computed * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to(self, device: DeviceLike) -> BlockMask:
        """The mask itself: there is one device."""
        return self

    def __repr__(self) -> str:
        lists = "".join(
            f"    {name}={None if listed is None else listed.shape},\n"
            for name in _LISTS
            for listed in (getattr(self, name),)
        )
        mod = getattr(self.mask_mod, "__name__", repr(self.mask_mod))
        return (
            f"BlockMask(\n{lists}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n"
            f"    sparsity={self.sparsity():.2f}%,\n    mask_mod={mod}\n)"
        )
