"""Scaling of losses, so that small gradients survive in float16.

The loss is multiplied by a large factor, gradients are divided by it before the optimizer sees
them, and a step whose gradients are not finite is left out. The factor grows while all goes well
and shrinks when a step was left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from evergrad.amp.skipped_step import step_unless
from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.compound import Compound
from evergrad.core.functionalize import concrete_item, functionalizing_trace
from evergrad.core.memory_format import sparse_coo
from evergrad.core.state import using
from evergrad.core.symbolic_numbers import symbolic_item
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Var
from evergrad.core.types import StateDict
from evergrad.ops.rows.check import require
from evergrad.ops.rows.creation.constants import full
from evergrad.ops.rows.elementwise.basic import where
from evergrad.ops.rows.elementwise.logic import isfinite
from evergrad.ops.rows.movement.joining import stack
from evergrad.ops.rows.reduce.extrema import amax

if TYPE_CHECKING:
    from evergrad.optim.optimizer import Optimizer


class OptState(Enum):
    """Where an optimizer stands between two calls of ``update``."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


# What ``found_inf`` holds before gradients have been looked at.
_UNKNOWN = -1.0


def _held(value: float, dtype: dtypes.dtype = dtypes.float32) -> Tensor:
    """A number of the state as a tensor, which outlives a trace that is running."""
    with using(trace=None):
        return full((), value, dtype=dtype)


def _are_finite(grad: Tensor) -> Tensor:
    """Whether all elements of a gradient are finite: of a sparse one those that are stored."""
    stored = grad
    if isinstance(grad, Compound):
        # In 16 bits the sum of elements in one place may not be.
        stored = (grad.coalesce() if grad.layout is sparse_coo else grad).values()
    finite: Tensor = isfinite(stored).all()
    return finite


class _Progress:
    """What is known of one optimizer since the last ``update``.

    ``found_inf`` (whether a gradient was not finite) and the stage are tensors: a compiled step
    writes them, whichever part of the protocol it contains.
    """

    __slots__ = ("_now", "found_inf", "held_stage", "optimizer")

    def __init__(self, optimizer: object) -> None:
        self.optimizer = optimizer  # kept, so that its id stays its own
        self.found_inf = _held(_UNKNOWN)
        self.held_stage = _held(0, dtypes.int64)
        # The stage that a running trace has set, which its symbolic value does not tell.
        self._now: tuple[object, OptState] | None = None

    @property
    def stage(self) -> OptState:
        trace = functionalizing_trace()
        if trace is None:
            return OptState(int(self.held_stage.item()))
        if isinstance(self.held_stage._storage.value, Var):
            assert self._now is not None
            return self._now[1]
        found = trace.add_guard(lambda: concrete_item(self.held_stage), "the stage of a GradScaler")
        return OptState(int(found))

    @stage.setter
    def stage(self, value: OptState) -> None:
        trace = functionalizing_trace()
        self._now = None if trace is None else (trace, value)
        self.held_stage.fill_(value.value)

    @property
    def is_known(self) -> bool:
        """Whether gradients have been looked at."""
        return self.stage is not OptState.READY

    def reset(self) -> None:
        self.found_inf.fill_(_UNKNOWN)
        self.stage = OptState.READY


class GradScaler:
    """Scales losses, unscales gradients, leaves out steps that are not finite.

    The factor, the count of good steps and what was found are tensors, and inside a compiled step
    the update that is left out is a selection, so that a step with all of it is one program.

    Args:
        device: ``"cpu"``; the default is PyTorch's
        init_scale: the first factor; default 65536
        growth_factor: what it grows by after ``growth_interval`` good steps; default 2
        backoff_factor: what it shrinks by after a bad one; default 0.5
        growth_interval: default 2000
        enabled: whether it does anything; default ``True``

    >>> model = nn.Linear(2, 1)
    >>> optimizer, scaler = optim.SGD(model.parameters(), lr=0.1), eg.amp.GradScaler("cpu")
    >>> scaler.scale(model(eg.ones(1, 2)).sum()).backward()
    >>> _ = scaler.step(optimizer)
    >>> scaler.update()
    >>> scaler.get_scale()
    65536.0
    """

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
        self._growth_tracker = _held(0, dtypes.int64)
        self._progress: dict[int, _Progress] = {}

    # -- one step ---------------------------------------------------------------------------

    def scale(self, outputs: object) -> Any:
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
            self._scale = _held(self._init_scale)
        return self._scale

    def unscale_(self, optimizer: object) -> None:
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
        found = self._unscale_grads(optimizer, allow_fp16=False)
        with using(grad=False):
            if found is None:
                progress.found_inf.fill_(_UNKNOWN)
            else:
                progress.found_inf.copy_(cast(found, dtypes.float32))
        progress.stage = OptState.UNSCALED

    def _progress_of(self, optimizer: object) -> _Progress:
        found = self._progress.get(id(optimizer))
        if found is None:
            found = self._progress[id(optimizer)] = _Progress(optimizer)
        return found

    def _unscale_grads(self, optimizer: Any, allow_fp16: bool) -> Tensor | None:
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
        inverse = 1.0 / symbolic_item(self._scale)
        found: Tensor | None = None
        with using(grad=False):
            for grad in grads:
                bad = ~_are_finite(grad)
                found = bad if found is None else found | bad
                grad.mul_(inverse)
        return found

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
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
        require(
            progress.found_inf != _UNKNOWN, AssertionError,
            lambda: "No inf checks were recorded for this optimizer.",
        )  # fmt: skip
        result = step_unless(progress.found_inf == 1, optimizer, args, kwargs)
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
        for progress in self._progress.values():
            if progress.is_known:
                progress.reset()

    def _set_scale(self, new_scale: float | Tensor) -> None:
        assert self._scale is not None
        if isinstance(new_scale, Tensor) and (new_scale.numel() != 1 or new_scale.requires_grad):
            raise AssertionError(
                "new_scale should be a float or a 1-element Tensor with requires_grad=False."
            )
        self._scale.fill_(float(new_scale))

    def _adapt_scale(self) -> None:
        scale, count = self._scale, self._growth_tracker
        assert scale is not None
        known = [p.found_inf for p in self._progress.values() if p.is_known]
        if not known:
            raise AssertionError("No inf checks were recorded prior to update.")
        growth, backoff, interval = self._settings()
        with using(grad=False):
            largest = known[0] if len(known) == 1 else amax(stack(known))
            require(
                largest != _UNKNOWN, AssertionError,
                lambda: "No inf checks were recorded prior to update.",
            )  # fmt: skip
            found, grown = largest == 1, scale * growth
            is_due = count + 1 == interval
            larger = where(is_due & isfinite(grown), grown, scale)
            scale.copy_(where(found, scale * backoff, larger))
            count.copy_(where(found | is_due, 0, count + 1))

    def _settings(self) -> tuple[float, float, int]:
        """The options of the growth; constants of a traced program, which are guarded on."""

        def settings() -> tuple[float, float, int]:
            return self._growth_factor, self._backoff_factor, self._growth_interval

        trace = functionalizing_trace()
        if trace is not None:
            trace.add_guard(settings, "the growth of a GradScaler")
        return settings()

    # -- settings and state -----------------------------------------------------------------

    def get_scale(self) -> float:
        """The factor; 1 if scaling is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """The growth factor."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the growth factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The backoff factor."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the backoff factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The growth interval."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the growth interval."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: without the optimizers, of which nothing is known between iterations."""
        if self._enabled and any(progress.is_known for progress in self._progress.values()):
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                "the end after scaler.update()."
            )
        return {**self.__dict__, "_progress": {}}

    def state_dict(self) -> StateDict:
        """Everything needed to go on, under PyTorch's keys; empty if scaling is off."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": int(self._growth_tracker.item()),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
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
        self._growth_tracker.fill_(state_dict["_growth_tracker"])
