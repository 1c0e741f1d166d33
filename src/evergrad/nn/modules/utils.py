"""One number for each dimension: helpers that programs borrow from PyTorch's layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def _ntuple(n: int, name: str = "parse") -> Callable[[object], tuple[object, ...]]:
    def parse(value: object) -> tuple[object, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, object], prefix: str) -> None:
    """Take a prefix such as ``module.`` off the names of a state dict, in place."""
    for name in list(state_dict):
        if name.startswith(prefix):
            state_dict[name.removeprefix(prefix)] = state_dict.pop(name)
