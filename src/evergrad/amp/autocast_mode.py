"""The switch for autocast: a context manager and decorator, and functions to ask and set it.

What the mode does to ops is the business of :mod:`evergrad.core.autocast`. It holds in the thread
(more exactly, the context) that entered it. Devices other than the CPU can be asked about, as
programs do, and are never on.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from evergrad.core import dtypes
from evergrad.core.autocast import Autocast
from evergrad.core.dtypes import dtype
from evergrad.core.state import STATE, set_mode
from evergrad.core.tensor import Tensor
from evergrad.core.thread_variable import thread_variable
from evergrad.core.tree import tree_map_only

if TYPE_CHECKING:
    from evergrad.autograd.function import FunctionCtx

F = TypeVar("F", bound=Callable[..., Any])

_DEVICE_TYPES = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia",
    "xla", "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone",
)  # fmt: skip
_AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps", "xla", "hpu", "mtia", "ipu", "maia")
_LOWER_ON_CPU = (dtypes.bfloat16, dtypes.float16)
_BFLOAT16_BY_DEFAULT = ("cpu", "xla", "hpu", "maia")

# Lower precisions that were set for a device, and whether casts of weights are remembered.
_chosen: ContextVar[dict[str, dtype]] = thread_variable("evergrad_autocast_dtypes", {})
_remembers: ContextVar[bool] = thread_variable("evergrad_autocast_cache", True)


class autocast:  # noqa: N801 - PyTorch's spelling
    """Inside, products compute in a lower precision and losses in float32.

    ``with autocast("cpu", dtype=bfloat16):`` or ``@autocast("cpu")``. Gradients arrive in the
    parameters' own element type. Leave ``backward`` outside, as in PyTorch.

    Args:
        device_type: ``"cpu"``
        dtype: the lower precision; default bfloat16
        enabled: whether it holds; default ``True``
        cache_enabled: whether casts of parameters are kept; default as it is

    >>> with eg.autocast("cpu", dtype=eg.bfloat16):
    ...     y = nn.Linear(2, 3)(eg.ones(1, 2))
    >>> y.dtype
    evergrad.bfloat16
    """

    def __init__(
        self, device_type: str, dtype: dtype | None = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device_type
        self.fast_dtype: dtypes.dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._enabled = bool(enabled) and _can_be_on(device_type, self.fast_dtype)
        self._cache_enabled = _remembers.get() if cache_enabled is None else cache_enabled
        self._former: list[tuple[Autocast | None, dict[str, dtypes.dtype], bool]] = []

    def __enter__(self) -> autocast:
        state = STATE.get()
        self._former.append((state.autocast, _chosen.get(), _remembers.get()))
        _chosen.set({**_chosen.get(), self.device: self.fast_dtype})
        _remembers.set(self._cache_enabled)
        if self.device == "cpu":
            set_mode(autocast=self._mode(state.autocast))
        return self

    def _mode(self, outer: Autocast | None) -> Autocast | None:
        if not self._enabled:
            return None
        cache: dict[object, Any] | None = None
        if self._cache_enabled:
            cache = {} if outer is None or outer.cache is None else outer.cache
        return Autocast(self.fast_dtype, cache)

    def __exit__(self, *exc: object) -> None:
        former, chosen, remembers = self._former.pop()
        _chosen.set(chosen)
        _remembers.set(remembers)
        if self.device == "cpu":
            set_mode(autocast=former)

    def __call__(self, func: F) -> F:
        @functools.wraps(func)
        def within(*args: object, **kwargs: object) -> object:
            with self:
                return func(*args, **kwargs)

        return within  # type: ignore[return-value]


def _can_be_on(device_type: str, dtype: dtype) -> bool:
    """Whether the mode changes anything; says why not where a program would expect it to."""
    if device_type == "cpu":
        if dtype in _LOWER_ON_CPU:
            return True
        warnings.warn(
            "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
            "CPU Autocast only supports dtypes of evergrad.bfloat16, evergrad.float16 currently.",
            UserWarning,
            stacklevel=3,
        )
    elif device_type == "cuda":
        warnings.warn(
            "CUDA is not available: evergrad computes on the CPU. Disabling autocast.",
            UserWarning,
            stacklevel=3,
        )
    return False


def _check_device_type(device_type: str) -> None:
    if device_type not in _DEVICE_TYPES:
        raise RuntimeError(
            f"Expected one of {', '.join(_DEVICE_TYPES)} device type at start of device string: "
            f"{device_type}"
        )


def is_autocast_available(device_type: str) -> bool:
    """Whether the device type knows autocast at all.

    Args:
        device_type: such as ``"cpu"``

    >>> eg.amp.is_autocast_available("cpu")
    True
    """
    _check_device_type(device_type)
    return device_type in _AUTOCAST_DEVICES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a device type (PyTorch's first meaning: for CUDA)."""
    _check_device_type(device_type)
    return device_type == "cpu" and STATE.get().autocast is not None


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Switch autocast on or off for the rest of this context; only the CPU can be switched on."""
    _check_device_type(device_type)
    if device_type != "cpu":
        if enabled:
            raise RuntimeError(
                f"autocast cannot be switched on for {device_type!r}: evergrad computes on the "
                "CPU. Use set_autocast_enabled('cpu', True)."
            )
        return
    cache: dict[object, Any] | None = {} if _remembers.get() else None
    set_mode(autocast=Autocast(get_autocast_dtype("cpu"), cache) if enabled else None)


def get_autocast_dtype(device_type: str) -> dtype:
    """The lower precision of a device type."""
    _check_device_type(device_type)
    by_default = dtypes.bfloat16 if device_type in _BFLOAT16_BY_DEFAULT else dtypes.float16
    return _chosen.get().get(device_type, by_default)


def set_autocast_dtype(device_type: str, dtype: dtype) -> None:
    """Set the lower precision of a device type for the rest of this context."""
    _check_device_type(device_type)
    _chosen.set({**_chosen.get(), device_type: dtype})
    current = STATE.get().autocast
    if device_type == "cpu" and current is not None:
        set_mode(autocast=Autocast(dtype, current.cache))


def is_autocast_cache_enabled() -> bool:
    """Whether the casts of weights are remembered inside an autocast block."""
    return _remembers.get()


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set whether the casts of weights are remembered inside autocast blocks to come."""
    _remembers.set(bool(enabled))


def clear_autocast_cache() -> None:
    """Forget the casts of weights that the running autocast block remembers."""
    current = STATE.get().autocast
    if current is not None and current.cache is not None:
        current.cache.clear()


# -- custom functions ---------------------------------------------------------------------------


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: dtype | None = None) -> Any:
    """Decorate ``forward`` of a custom function: its backward will run in the same mode.

    With ``cast_inputs`` floating-point arguments are cast to it first, and autocast is off inside.

    >>> class Product(eg.autograd.Function):
    ...     @staticmethod
    ...     @eg.amp.custom_fwd(device_type="cpu")
    ...     def forward(ctx, a, b):
    ...         ctx.save_for_backward(a, b)
    ...         return a @ b
    ...
    ...     @staticmethod
    ...     @eg.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         a, b = ctx.saved_tensors
    ...         return grad @ b.T, a.T @ grad
    >>> with eg.autocast("cpu"):
    ...     Product.apply(eg.ones(2, 2), eg.ones(2, 2)).dtype
    evergrad.bfloat16
    """
    _check_is_string(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx: FunctionCtx, *args: object, **kwargs: object) -> object:
        ctx._dtype = get_autocast_dtype(device_type)
        enabled = is_autocast_enabled(device_type)
        if cast_inputs is None or not enabled:
            ctx._fwd_used_autocast = enabled
            return fwd(ctx, *args, **kwargs)
        ctx._fwd_used_autocast = False
        with autocast(device_type=device_type, enabled=False):
            return fwd(ctx, *_cast(args, cast_inputs), **_cast(kwargs, cast_inputs))

    return decorated


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """Decorate ``backward`` of a custom function whose forward has :func:`custom_fwd`.

    Args:
        bwd: the function; without it, a decorator
        device_type: ``"cpu"``

    >>> class Product(eg.autograd.Function):
    ...     @staticmethod
    ...     @eg.amp.custom_fwd(device_type="cpu")
    ...     def forward(ctx, a, b):
    ...         ctx.save_for_backward(a, b)
    ...         return a @ b
    ...
    ...     @staticmethod
    ...     @eg.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         a, b = ctx.saved_tensors
    ...         return grad @ b.T, a.T @ grad
    >>> with eg.autocast("cpu"):
    ...     Product.apply(eg.ones(2, 2), eg.ones(2, 2)).dtype
    evergrad.bfloat16
    """
    _check_is_string(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx: FunctionCtx, *args: object, **kwargs: object) -> object:
        with autocast(device_type=device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(ctx, *args, **kwargs)

    return decorated


def _check_is_string(device_type: object) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _cast(values: object, dtype: dtype) -> Any:
    def convert(tensor: Tensor) -> Tensor:
        eligible = tensor.is_floating_point() and tensor.dtype is not dtypes.float64
        return tensor.to(dtype) if eligible else tensor

    return tree_map_only(Tensor, convert, values)
