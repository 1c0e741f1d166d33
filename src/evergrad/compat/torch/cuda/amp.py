"""Mixed precision under its former CUDA spelling: deprecated, and without a GPU never on."""

from __future__ import annotations

from typing import Any

from evergrad.amp.former import (
    FormerAutocast,
    FormerGradScaler,
    former_custom_bwd,
    former_custom_fwd,
)
from evergrad.core.dtypes import dtype


class autocast(FormerAutocast):  # noqa: N801 - PyTorch's spelling
    """``amp.autocast("cuda")``"""

    device_type = "cuda"


class GradScaler(FormerGradScaler):
    """``amp.GradScaler("cuda")``"""

    device_type = "cuda"


def custom_fwd(fwd: object = None, *, cast_inputs: dtype | None = None) -> Any:
    """``amp.custom_fwd(device_type="cuda")``"""
    return former_custom_fwd("cuda", fwd, cast_inputs)


def custom_bwd(bwd: object) -> Any:
    """``amp.custom_bwd(device_type="cuda")``"""
    return former_custom_bwd("cuda", bwd)


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
