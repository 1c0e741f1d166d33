"""Keeps NumPy from warning about infinities and NaNs, which are values like any other here.

``np.errstate`` costs more than a small op. It is a context variable underneath, so setting that
variable does the same for a tenth of the price; where a NumPy release moves it, the public way
serves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

numpy_errors: Any
QUIET: Any

try:
    from numpy._core.umath import _extobj_contextvar as numpy_errors
    from numpy._core.umath import _make_extobj

    QUIET = _make_extobj(all="ignore")
except (ImportError, TypeError):  # pragma: no cover - depends on the NumPy release

    class _ErrorState:
        """The two methods of a context variable that are used, on the public functions."""

        def set(self, quiet: Any) -> Any:
            return np.seterr(all="ignore")

        def reset(self, former: Any) -> None:
            np.seterr(**former)

    numpy_errors, QUIET = _ErrorState(), None

__all__ = ["QUIET", "numpy_errors"]
