"""The former spellings of mixed precision: ``cuda.amp.autocast()``, ``cpu.amp.autocast()``."""

from __future__ import annotations

import warnings
from typing import Any

from evergrad.amp import autocast_mode, grad_scaler
from evergrad.core.dtypes import dtype


def _deprecated(device_type: str, name: str) -> None:
    warnings.warn(
        f"`{device_type}.amp.{name}(args...)` is deprecated. Please use "
        f"`amp.{name}('{device_type}', args...)` instead.",
        FutureWarning,
        stacklevel=4,
    )


class FormerAutocast(autocast_mode.autocast):
    """``autocast`` whose device the module says."""

    device_type: str

    def __init__(
        self, enabled: bool = True, dtype: dtype | None = None, cache_enabled: bool = True
    ) -> None:
        _deprecated(self.device_type, "autocast")
        super().__init__(
            self.device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled
        )


class FormerGradScaler(grad_scaler.GradScaler):
    """``GradScaler`` whose device the module says."""

    device_type: str

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        _deprecated(self.device_type, "GradScaler")
        super().__init__(
            self.device_type, init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def former_custom_fwd(device_type: str, fwd: object, cast_inputs: dtype | None) -> Any:
    _deprecated(device_type, "custom_fwd")
    return autocast_mode.custom_fwd(fwd, device_type=device_type, cast_inputs=cast_inputs)


def former_custom_bwd(device_type: str, bwd: object) -> Any:
    _deprecated(device_type, "custom_bwd")
    return autocast_mode.custom_bwd(bwd, device_type=device_type)
