"""evergrad: tensors, exact gradients and accounted memory, with PyTorch's names.

This module only gathers what others define: the functions exposed by the modules of
``evergrad.ops``, element types, modes and random state. Packages below (``evergrad.nn``,
``evergrad.optim``, ...) are imported when they are first used as attributes.
"""

import importlib as _importlib
import importlib.util as _importlib_util
import math as _math
import os as _os
from typing import Any as _Any

import evergrad.ops as _ops
from evergrad.autograd.modes import (
    enable_grad,
    inference_mode,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from evergrad.core import dtypes as _dtypes
from evergrad.core.dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types
from evergrad.core.formats import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    strided,
)
from evergrad.core.generators import (
    Generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from evergrad.core.generators import default_generator as _default_generator
from evergrad.core.printing import set_printoptions
from evergrad.core.settings import (
    are_deterministic_algorithms_enabled,
    get_default_device,
    get_float32_matmul_precision,
    get_num_interop_threads,
    get_num_threads,
    set_default_device,
    set_float32_matmul_precision,
    set_flush_denormal,
    set_num_interop_threads,
    set_num_threads,
    use_deterministic_algorithms,
)
from evergrad.core.shapes import Size
from evergrad.core.tensor import Device as device  # noqa: N813 - PyTorch's spelling
from evergrad.core.tensor import Tensor
from evergrad.core.transforms import vmap
from evergrad.ops.handles import TypedStorage, UntypedStorage
from evergrad.ops.public import FUNCTIONS as _FUNCTIONS

__version__ = "0.1.0"

__all__ = [
    "Generator",
    "Size",
    "Tensor",
    "TypedStorage",
    "UntypedStorage",
    "are_deterministic_algorithms_enabled",
    "can_cast",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "default_generator",
    "device",
    "dtype",
    "e",
    "enable_grad",
    "finfo",
    "get_default_device",
    "get_default_dtype",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "get_rng_state",
    "iinfo",
    "inf",
    "inference_mode",
    "initial_seed",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "layout",
    "manual_seed",
    "memory_format",
    "nan",
    "newaxis",
    "no_grad",
    "pi",
    "preserve_format",
    "promote_types",
    "seed",
    "set_default_device",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_grad_enabled",
    "set_num_interop_threads",
    "set_num_threads",
    "set_printoptions",
    "set_rng_state",
    "strided",
    "use_deterministic_algorithms",
    "vmap",
]

pi = _math.pi
e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None


def __getattr__(name: str) -> _Any:
    """The default generator of the calling thread, and packages, imported on first use."""
    if name == "default_generator":
        return _default_generator()
    if not name.startswith("_") and _importlib_util.find_spec(f"evergrad.{name}") is not None:
        return _importlib.import_module(f"evergrad.{name}")
    raise AttributeError(f"module 'evergrad' has no attribute {name!r}")


# Every module of ops enters its rows and functions when it is imported.
for _name in sorted(_os.listdir(_ops.__path__[0])):
    if _name.endswith(".py") and _name != "__init__.py":
        _importlib.import_module(f"evergrad.ops.{_name[:-3]}")

for _names in (_dtypes.BY_NAME, _dtypes.ALIASES, _FUNCTIONS):
    globals().update(_names)
    __all__.extend(_names)
