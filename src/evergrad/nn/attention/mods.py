"""Masks as functions of places: ``mask_mod(b, h, q, kv)`` says whether q may look at kv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import arange, ones

MaskMod = Callable[[Any, Any, Any, Any], Tensor]


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Everybody may look everywhere."""
    return ones((), dtype=bool)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Where all masks allow."""
    _check_callable(mask_mods)

    def both(b: object, h: object, q: object, kv: object) -> Tensor:
        allowed = ones((), dtype=bool)
        for mask in mask_mods:
            allowed = allowed & mask(b, h, q, kv)
        return allowed

    return both


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Where one of the masks allows."""
    _check_callable(mask_mods)

    def either(b: object, h: object, q: object, kv: object) -> Tensor:
        allowed = ~ones((), dtype=bool)
        for mask in mask_mods:
            allowed = allowed | mask(b, h, q, kv)
        return allowed

    return either


def _check_callable(mods: Sequence[object]) -> None:
    for mod in mods:
        if not callable(mod):
            raise RuntimeError(f"All inputs should be callable mask_mods: {mods}")


def indices_of(shape: Sequence[int]) -> list[Tensor]:
    """The places along each dimension."""
    return [arange(extent) for extent in shape]
