"""The Python array API standard, version 2024.12: ``Tensor.__array_namespace__()`` returns this.

Code written against the standard runs on tensors, and gradients flow through it. This package
only adapts: each function is one of the engine's under the standard's name and arguments.
"""

import math as _math
import sys as _sys
from types import ModuleType as _ModuleType

import evergrad.array_api.inspection as _inspection
from evergrad.array_api import (  # each enters its functions; two are extensions themselves
    creation,  # noqa: F401
    data_types,  # noqa: F401
    elementwise,  # noqa: F401
    fft,
    folding,  # noqa: F401
    linalg,
    manipulation,  # noqa: F401
    ordering,  # noqa: F401
)
from evergrad.array_api.adapt import NAMESPACE as _NAMESPACE
from evergrad.core import dtypes as _dtypes
from evergrad.extension import provides as _provides

__array_api_version__ = "2024.12"
__array_namespace_info__ = _inspection.NamespaceInfo

e: float = _math.e
inf: float = _math.inf
nan: float = _math.nan
newaxis = None
pi: float = _math.pi

globals().update(_NAMESPACE)
_DTYPES = {found.name: found for found in _dtypes.ALL}
globals().update(_DTYPES)

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "e", "fft", "inf", "linalg", "nan",
    "newaxis", "pi", *_NAMESPACE, *_DTYPES,
]  # fmt: skip


@_provides("array_namespace")
def _namespace() -> _ModuleType:
    return _sys.modules[__name__]
