"""Elementary functions as IR that LLVM vectorizes: without branches, and with few calls.

:func:`definitions` gives the IR of a function, by the modules :mod:`.exponentials`,
:mod:`.logarithms`, :mod:`.angles` and :mod:`.special`. Error bounds are stated at each and held by
a test. Rare arguments, such as huge angles, are left to the C library (:mod:`.rare`). The cost is
the number of instructions, but for divisions, whose latency twenty of them hide.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from evergrad.compiler.codegen.vecmath import angles, exponentials, logarithms, powers, special
from evergrad.compiler.codegen.vecmath.body import Definitions

_FUNCTIONS: dict[str, Callable[[str], Definitions]] = {
    f"vm_{name}": getattr(module, name)
    for module, names in (
        (exponentials, ("exp", "exp2", "expm1", "sigmoid", "tanh", "sinh", "cosh")),
        (logarithms, ("log", "log2", "log10", "log1p", "asinh", "acosh", "atanh")),
        (angles, ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")),
        (special, ("erf", "erfc", "erfinv", "ndtr", "lgamma", "digamma", "hypot", "fmod")),
        (powers, ("pow",)),
    )
    for name in names
}


def definitions(function: str, type: str) -> Definitions:
    """IR of a function for ``f32`` or ``f64`` and of those it calls, by name."""
    return _FUNCTIONS[function](type)


@cache
def vector_definitions(function: str, lanes: int) -> Definitions:
    """IR of a function for vectors of float32: that of the scalar one, with types and constants
    for each lane. For those that compute in single precision alone."""
    return {
        name.replace("_f32", f".v{lanes}f32").replace(".f32", f".v{lanes}f32"): _vectorized(
            body, lanes
        )
        for name, body in definitions(function, "f32").items()
    }


def _vectorized(body: str, lanes: int) -> str:
    def each(found: re.Match[str]) -> str:
        type = "float" if found[0].startswith("0x") else "i32"
        return f"<{', '.join([f'{type} {found[0]}'] * lanes)}>"

    body = re.sub(r"\b(float|i32|i1)\b", rf"<{lanes} x \1>", body)
    body = re.sub(r"[_.]f32\b", f".v{lanes}f32", body)
    return re.sub(r"(?<= )(0x[0-9A-F]{16}|-?\d+)(?=[,)\n])", each, body)
