"""Function transforms: gradients, directional derivatives, Jacobians, batching, control flow.

Each takes a function and gives a function; they nest in any order with each other and with
``backward``, hooks, custom functions and ``checkpoint``.
"""

from typing import TYPE_CHECKING

from evergrad.core.vmap import vmap
from evergrad.func.control_flow import associative_scan, cond, map, scan, while_loop
from evergrad.func.derivatives import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from evergrad.func.modules import (
    functional_call,
    functionalize,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from evergrad.lazy import known_names

__all__ = [
    "associative_scan",
    "cond",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "map",
    "replace_all_batch_norm_modules_",
    "scan",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]

if not TYPE_CHECKING:
    __getattr__ = known_names(__name__)
