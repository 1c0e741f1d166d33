"""Call forms that PyTorch has deprecated: factors by position, before the tensors they scale.

``addcmul(x, 2, a, b)`` is ``addcmul(x, a, b, value=2)``, and ``addmm(2, x, 3, a, b)`` is
``addmm(x, a, b, beta=2, alpha=3)``. A call with as many arguments as there are tensors is passed to
the function unchanged. ``add`` and ``sub`` read their older form themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS, warn_of_older_form

# The number of arguments of an older form: the places of the factors, and what they are called.
Places = Mapping[int, Mapping[int, str]]

_VALUE: Places = {4: {1: "value"}}
_PRODUCT: Places = {4: {0: "beta"}, 5: {0: "beta", 2: "alpha"}}
_PRODUCT_OF_SELF: Places = {4: {1: "beta"}, 5: {1: "beta", 2: "alpha"}}

_FUNCTIONS: dict[str, Places] = {
    "addcmul": _VALUE, "addcdiv": _VALUE, "addbmm": _PRODUCT,
    "addmm": _PRODUCT, "addmv": _PRODUCT, "addr": _PRODUCT, "baddbmm": _PRODUCT,
}  # fmt: skip


def _accepting(function: Callable[..., object], places: Places) -> Callable[..., object]:
    nominal = min(places) - 1
    name = function.__name__

    @functools.wraps(function)
    def form(*args: object, **kwargs: object) -> object:
        if len(args) > nominal and len(args) in places:
            factors = places[len(args)]
            kwargs |= {factor: args[at] for at, factor in factors.items()}
            args = tuple(a for at, a in enumerate(args) if at not in factors)
            warn_of_older_form(name, factors.values())
        return function(*args, **kwargs)

    return form


for _name, _places in _FUNCTIONS.items():
    FUNCTIONS[_name] = _accepting(FUNCTIONS[_name], _places)
    _of_self = _PRODUCT_OF_SELF if _places is _PRODUCT else _places
    for _method in (_name, _name + "_"):
        setattr(Tensor, _method, _accepting(getattr(Tensor, _method), _of_self))
