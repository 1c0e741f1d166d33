"""Ragged tensors: examples of different lengths as one tensor."""

from evergrad.lazy import lazy_names

_HOMES: dict[str, tuple[str, ...]] = {
    "batches": ("collate", "positions"),
    "construct": (
        "as_nested_tensor",
        "masked_select",
        "narrow",
        "nested_tensor",
        "nested_tensor_from_jagged",
        "to_padded_tensor",
    ),
}

__getattr__ = lazy_names("evergrad.nested", _HOMES)
__all__ = [name for names in _HOMES.values() for name in names]


def __dir__() -> list[str]:
    return __all__
