"""evergrad: tensors, exact gradients and accounted memory, with PyTorch's names.

This module only gathers what others define: the functions exposed from ``evergrad.ops``, the
element types, modes and random state. Packages below (``evergrad.nn``, ``evergrad.optim``, ...)
are imported when they are first used as attributes.
"""

import importlib as _importlib
import importlib.util as _importlib_util
import math as _math
import pkgutil as _pkgutil
import sys as _sys
import traceback as _traceback
from types import ModuleType as _ModuleType
from typing import Any as _Any

from evergrad import ops as _ops
from evergrad.autograd.modes import (
    enable_grad,
    inference_mode,
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
from evergrad.core.printing import get_printoptions, set_printoptions
from evergrad.core.shapes import Size
from evergrad.core.tensor import Device as device
from evergrad.core.tensor import Tensor
from evergrad.ops.public import FUNCTIONS as _FUNCTIONS

__version__ = "0.1.0"

pi = _math.pi
e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None

for _module in _pkgutil.iter_modules(_ops.__path__):
    try:
        _importlib.import_module(f"evergrad.ops.{_module.name}")
    except Exception:
        _traceback.print_exc(file=_sys.stderr)

import evergrad.autograd  # noqa: E402, F401

globals().update(_dtypes.BY_NAME)
globals().update(_dtypes.ALIASES)
globals().update(_FUNCTIONS)


def __getattr__(name: str) -> _Any:
    """The default generator of the calling thread, and subpackages, imported on first use."""
    if name == "default_generator":
        return _default_generator()
    if not name.startswith("_") and _importlib_util.find_spec(f"evergrad.{name}") is not None:
        return _importlib.import_module(f"evergrad.{name}")
    raise AttributeError(f"module 'evergrad' has no attribute {name!r}")


__all__ = sorted(
    [name for name, _value in globals().items()
     if not name.startswith("_") and not isinstance(_value, _ModuleType)] + ["default_generator"]
)
