"""Mixed precision: autocast, and the scaling of losses that goes with float16."""

from typing import TYPE_CHECKING

from evergrad.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from evergrad.amp.grad_scaler import GradScaler
from evergrad.lazy import known_names

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
