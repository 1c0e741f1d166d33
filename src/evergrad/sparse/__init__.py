"""Sparse tensors: dense elements, and where they stand."""

from evergrad.lazy import lazy_names

_HOMES = {
    "functions": ("addmm", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum"),
    "invariants": ("check_sparse_tensor_invariants",),
}

__getattr__ = lazy_names("evergrad.sparse", _HOMES)
__all__ = [name for names in _HOMES.values() for name in names]


def __dir__() -> list[str]:
    return __all__
