"""Mixed precision: autocast, and the scaling of losses that goes with float16."""

from evergrad.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from evergrad.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
