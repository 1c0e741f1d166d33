"""Functions on tensors for code that is imported before the modules that define them.

Derivative formulas, batching rules and transforms are written in ops. The modules of
:mod:`evergrad.ops` are imported after :mod:`evergrad.core`, and after each other; where a direct
import would close a cycle, code calls ``ops.<name>``. The module that defines such a function
registers it with :func:`late_bound`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import AnyFunction

F = TypeVar("F", bound=Callable[..., Any])


class Ops:
    """The registered functions, each an attribute."""

    arange: Callable[..., Tensor]
    cat: Callable[..., Tensor]
    clone: Callable[..., Tensor]
    complex: Callable[..., Tensor]
    conj: Callable[..., Tensor]
    expand: Callable[..., Tensor]
    index_add: Callable[..., Tensor]
    index_select: Callable[..., Tensor]
    isnan: Callable[..., Tensor]
    movedim: Callable[..., Tensor]
    narrow: Callable[..., Tensor]
    nonzero: AnyFunction
    products_before: Callable[..., Tensor]
    reshape: Callable[..., Tensor]
    select: Callable[..., Tensor]
    stack: Callable[..., Tensor]
    standard_gamma_grad: Callable[..., Tensor]
    sum: Callable[..., Tensor]
    sum_to_type: Callable[..., Tensor]
    tensor: Callable[..., Tensor]
    view_as_real: Callable[..., Tensor]
    where: AnyFunction
    zeros: Callable[..., Tensor]
    zeros_like: Callable[..., Tensor]


ops: Ops = Ops()


def late_bound(function: F) -> F:
    """Make a function an attribute of ``ops``, under its own name."""
    name = function.__name__
    if name not in Ops.__annotations__ or hasattr(ops, name):
        raise ValueError(f"ops.{name} is not declared in {__name__}, or registered twice")
    setattr(ops, name, function)
    return function
