"""Sparse tensors: dense elements, and where they stand."""

from typing import TYPE_CHECKING

from evergrad.lazy import lazy_names

_HOMES = {
    "checks": ("as_sparse_gradcheck", "spsolve", "to_sparse_semi_structured"),
    "functions": ("addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"),
    "invariants": ("check_sparse_tensor_invariants",),
}

if TYPE_CHECKING:
    from evergrad.sparse.checks import as_sparse_gradcheck as as_sparse_gradcheck
    from evergrad.sparse.checks import spsolve as spsolve
    from evergrad.sparse.checks import to_sparse_semi_structured as to_sparse_semi_structured
    from evergrad.sparse.functions import addmm as addmm
    from evergrad.sparse.functions import log_softmax as log_softmax
    from evergrad.sparse.functions import mm as mm
    from evergrad.sparse.functions import sampled_addmm as sampled_addmm
    from evergrad.sparse.functions import softmax as softmax
    from evergrad.sparse.functions import spdiags as spdiags
    from evergrad.sparse.functions import sum as sum
    from evergrad.sparse.invariants import (
        check_sparse_tensor_invariants as check_sparse_tensor_invariants,
    )
else:
    __getattr__ = lazy_names("evergrad.sparse", _HOMES)

__all__ = [name for names in _HOMES.values() for name in names]


def __dir__() -> list[str]:
    return __all__
