"""Ragged tensors: examples of different lengths as one tensor."""

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from evergrad.nested.batches import collate as collate
    from evergrad.nested.batches import positions as positions
    from evergrad.nested.construct import as_nested_tensor as as_nested_tensor
    from evergrad.nested.construct import masked_select as masked_select
    from evergrad.nested.construct import narrow as narrow
    from evergrad.nested.construct import nested_tensor as nested_tensor
    from evergrad.nested.construct import nested_tensor_from_jagged as nested_tensor_from_jagged
    from evergrad.nested.construct import to_padded_tensor as to_padded_tensor
else:
    __getattr__ = lazy_names("evergrad.nested", _HOMES)

__all__ = [name for names in _HOMES.values() for name in names]


def __dir__() -> list[str]:
    return __all__
