"""Scaling of losses, so that small gradients survive in float16.

The loss is multiplied by a large factor, gradients are divided by it before the optimizer sees
them, and a step whose gradients are not finite is left out. The factor grows while all goes well
and shrinks when a step was left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import Enum
from typing import Any

from evergrad.core import dtypes
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.elementwise.logic import isfinite


class OptState(Enum):
    """Where an optimizer stands between two calls of ``update``."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class _Progress:
    """What is known of one optimizer since the last ``update``."""

    __slots__ = ("found_inf", "stage")

    def __init__(self) -> None:
        self.stage = OptState.READY
        # Whether a gradient was not finite; unknown until they have been looked at.
        self.found_inf: bool | None = None


class GradScaler:
    """Scales losses, unscales gradients, leaves out steps that are not finite."""

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda":
            warnings.warn(
                "GradScaler is enabled for 'cuda', but CUDA is not available.  Disabling.",
                UserWarning,
                stacklevel=2,
            )
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        # The factor is a float32 tensor, as in PyTorch, from the first loss on.
        self._scale: Tensor | None = None
        self._growth_tracker = 0
        self._progress: dict[int, _Progress] = {}

    # -- one step ---------------------------------------------------------------------------

    def scale(self, outputs: Any) -> Any:
        """A loss, or an iterable of them, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._current_scale()
        if isinstance(outputs, list | tuple):
            return type(outputs)([self.scale(output) for output in outputs])
        if isinstance(outputs, Iterable) and not isinstance(outputs, str):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _current_scale(self) -> Tensor:
        if self._scale is None:
            self._scale = full((), self._init_scale, dtype=dtypes.float32)
        return self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the factor, as before clipping."""
        if not self._enabled:
            return
        progress = self._progress_of(optimizer)
        if progress.stage is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if progress.stage is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        progress.found_inf = self._unscale_grads(optimizer, allow_fp16=False)
        progress.stage = OptState.UNSCALED

    def _progress_of(self, optimizer: Any) -> _Progress:
        return self._progress.setdefault(id(optimizer), _Progress())

    def _unscale_grads(self, optimizer: Any, allow_fp16: bool) -> bool | None:
        """Whether a gradient was not finite; ``None`` if there was none at all."""
        if self._scale is None:
            raise AssertionError(
                "Attempted unscale_ but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        grads = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        if not allow_fp16 and any(g.dtype is dtypes.float16 for g in grads):
            raise ValueError("Attempting to unscale FP16 gradients.")
        inverse = 1.0 / self._scale.item()
        found: bool | None = None
        with using(grad=False):
            for grad in grads:
                found = bool(found) or not isfinite(grad).all().item()
                grad.mul_(inverse)
        return found

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale if that was not done, then step unless a gradient is not finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        progress = self._progress_of(optimizer)
        if progress.stage is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if progress.stage is OptState.READY:
            self.unscale_(optimizer)
        if progress.found_inf is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None if progress.found_inf else optimizer.step(*args, **kwargs)
        progress.stage = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Change the factor by what was found since the last time, or to a given one."""
        if not self._enabled:
            return
        if self._scale is None:
            raise AssertionError(
                "Attempted update but _scale is None.  This may indicate your script did not use "
                "scaler.scale(loss or outputs) earlier in the iteration."
            )
        if new_scale is not None:
            self._set_scale(new_scale)
        else:
            self._adapt_scale()
        self._progress = {}

    def _set_scale(self, new_scale: float | Tensor) -> None:
        assert self._scale is not None
        if isinstance(new_scale, Tensor) and (new_scale.numel() != 1 or new_scale.requires_grad):
            raise AssertionError(
                "new_scale should be a float or a 1-element Tensor with requires_grad=False."
            )
        self._scale.fill_(float(new_scale))

    def _adapt_scale(self) -> None:
        assert self._scale is not None
        found = [p.found_inf for p in self._progress.values() if p.found_inf is not None]
        if not found:
            raise AssertionError("No inf checks were recorded prior to update.")
        if any(found):
            self._scale.mul_(self._backoff_factor)
            self._growth_tracker = 0
            return
        self._growth_tracker += 1
        if self._growth_tracker == self._growth_interval:
            grown = self._scale * self._growth_factor
            if isfinite(grown).item():
                self._scale.copy_(grown)
            self._growth_tracker = 0

    # -- settings and state -----------------------------------------------------------------

    def get_scale(self) -> float:
        """The factor; 1 if scaling is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, under PyTorch's keys; empty if scaling is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
