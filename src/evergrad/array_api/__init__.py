"""The Python array API standard, version 2024.12: ``Tensor.__array_namespace__()`` returns this.

Code written against the standard runs on tensors, and gradients flow through it. This package
only adapts: each function is one of the engine's under the standard's name and arguments.
"""

import importlib as _importlib
import math as _math

import evergrad.array_api.inspection as _inspection
from evergrad.array_api.adapt import NAMESPACE as _NAMESPACE
from evergrad.core import dtypes as _dtypes

__array_api_version__ = "2024.12"
__array_namespace_info__ = _inspection.NamespaceInfo

e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None
pi = _math.pi

# Each of these enters its functions when it is imported; two are extensions themselves.
for _name in (
    "creation", "data_types", "elementwise", "fft", "folding", "linalg", "manipulation", "ordering",
):  # fmt: skip
    _importlib.import_module(f"{__name__}.{_name}")

globals().update(_NAMESPACE)
globals().update(_dtypes.BY_NAME)

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "e", "fft", "inf", "linalg", "nan",
    "newaxis", "pi", *_NAMESPACE, *_dtypes.BY_NAME,
]  # fmt: skip
