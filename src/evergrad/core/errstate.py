"""NumPy's error state, set so that infinities and NaNs cause no warnings.

``np.errstate`` costs more than a small op. It sets a context variable, and setting that variable
directly costs a tenth; for NumPy releases that do not have it, the public functions are used.
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
        """``set`` and ``reset`` of a context variable, by NumPy's public functions."""

        def set(self, quiet: object) -> object:
            return np.seterr(all="ignore")

        def reset(self, former: Any) -> None:
            np.seterr(**former)

    numpy_errors, QUIET = _ErrorState(), None

__all__ = ["QUIET", "numpy_errors"]
