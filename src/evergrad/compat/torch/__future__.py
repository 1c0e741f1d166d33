"""How ``Module.to`` changes parameters: always through ``.data``; the switches are remembered."""

from __future__ import annotations

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    return _swap
