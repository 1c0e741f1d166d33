"""Functions that PyTorch removed: calls raise its error, which says what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

_REMOVED = "This function was deprecated since version 1.9 and is now removed."
_INSTEAD = {
    "matrix_rank": "Use `torch.linalg.matrix_rank` instead.",
    "solve": "`torch.solve` is deprecated in favor of `torch.linalg.solve`, which has its "
    "arguments reversed and does not return the LU factorization.",
    "lstsq": "`torch.lstsq` is deprecated in favor of `torch.linalg.lstsq`, which has its "
    "arguments reversed and does not return the QR decomposition in the results.",
    "eig": "`torch.linalg.eig` returns complex tensors of dtype `cfloat` or `cdouble` rather than "
    "real tensors mimicking complex tensors.",
    "symeig": "The default behavior has changed from using the upper triangular portion of the "
    "matrix by default to using the lower triangular portion: use `torch.linalg.eigh`.",
}


def _refusing(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError(f"{_REMOVED} {instead}")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


matrix_rank, solve, lstsq, eig, symeig = (
    _refusing(name, instead) for name, instead in _INSTEAD.items()
)
