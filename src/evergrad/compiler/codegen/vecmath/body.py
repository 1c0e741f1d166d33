"""The IR of one elementary function while it is written.

:class:`Body` has the instructions of floats of one width; :attr:`Body.double` writes into the same
function in double precision. Intrinsics and other functions are entered in ``helpers`` where they
are used, by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cached_property

MANGLED = {"float": "f32", "double": "f64"}
_BITS = {"float": "i32", "double": "i64"}

Definitions = dict[str, str]

PURE = "nounwind willreturn memory(none)"


class Body:
    """IR of one function of ``%x`` (and ``%y``)."""

    def __init__(
        self,
        type: str = "float",
        lines: list[str] | None = None,
        helpers: Definitions | None = None,
    ) -> None:
        self.type = type
        self.integer: str = _BITS[type]
        self.truth = "i1"
        self.lines: list[str] = [] if lines is None else lines
        self.helpers: Definitions = {} if helpers is None else helpers

    @cached_property
    def double(self) -> Body:
        """The same function, in double precision from here on."""
        return self if self.type == "double" else Body("double", self.lines, self.helpers)

    @property
    def is_single(self) -> bool:
        return self.type == "float"

    def op(self, instruction: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def hex(self, value: float) -> str:
        """A constant, rounded to the type."""
        if self.is_single:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return f"0x{bits:016X}"

    def intrinsic(self, name: str, *args: str) -> str:
        mangled = f"llvm.{name}.{MANGLED[self.type]}"
        types = ", ".join([self.type] * len(args))
        self.helpers[mangled] = f"declare {self.type} @{mangled}({types})"
        given = ", ".join(f"{self.type} {a}" for a in args)
        return self.op(f"call {self.type} @{mangled}({given})")

    def use(self, function: Callable[[str], Definitions], name: str, *args: str) -> str:
        """Call another function of this package, ``function`` being what defines it."""
        mangled = MANGLED[self.type]
        self.helpers.update(function(mangled))
        given = ", ".join(f"{self.type} {a}" for a in args)
        return self.op(f"call {self.type} @{name}_{mangled}({given})")

    def library(self, name: str, *args: str) -> str:
        """Call a function of the C library."""
        types = ", ".join([self.type] * len(args))
        self.helpers[f"library_{name}"] = f"declare {self.type} @{name}({types}) {PURE}"
        given = ", ".join(f"{self.type} {a}" for a in args)
        return self.op(f"call {self.type} @{name}({given})")

    # -- arithmetic -----------------------------------------------------------------------------

    def fma(self, a: str, b: str, c: str) -> str:
        return self.intrinsic("fma", a, b, c)

    def mul(self, a: str, b: str) -> str:
        return self.op(f"fmul {self.type} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.op(f"fadd {self.type} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.op(f"fsub {self.type} {a}, {b}")

    def div(self, a: str, b: str) -> str:
        return self.op(f"fdiv {self.type} {a}, {b}")

    def neg(self, a: str) -> str:
        return self.op(f"fneg {self.type} {a}")

    def fabs(self, a: str) -> str:
        return self.intrinsic("fabs", a)

    def sqrt(self, a: str) -> str:
        return self.intrinsic("sqrt", a)

    def copysign(self, a: str, sign: str) -> str:
        return self.intrinsic("copysign", a, sign)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """By Horner's rule; the coefficients are given by ascending powers."""
        value = self.hex(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            value = self.fma(value, x, self.hex(c))
        return value

    # -- bits and choices -----------------------------------------------------------------------

    def bits(self, a: str) -> str:
        return self.op(f"bitcast {self.type} {a} to {self.integer}")

    def number(self, bits: str) -> str:
        return self.op(f"bitcast {self.integer} {bits} to {self.type}")

    def widened(self, a: str) -> str:
        """A float in double precision: an operand of :attr:`double`."""
        return self.op(f"fpext float {a} to double") if self.is_single else a

    def narrowed(self, a: str) -> str:
        """What :attr:`double` computed, in the type of the function."""
        return self.op(f"fptrunc double {a} to float") if self.is_single else a

    def compare(self, word: str, a: str, b: str) -> str:
        return self.op(f"fcmp {word} {self.type} {a}, {b}")

    def less(self, a: str, b: str) -> str:
        return self.compare("olt", a, b)

    def either(self, a: str, b: str) -> str:
        return self.op(f"or {self.truth} {a}, {b}")

    def both(self, a: str, b: str) -> str:
        return self.op(f"and {self.truth} {a}, {b}")

    def choose(self, condition: str, a: str, b: str) -> str:
        return self.op(f"select {self.truth} {condition}, {self.type} {a}, {self.type} {b}")

    def least(self, x: str, limit: float) -> str:
        """The minimum of a number and a limit; propagates NaN."""
        return self.choose(self.compare("ogt", x, self.hex(limit)), self.hex(limit), x)

    def nan_for_nan(self, x: str, value: str) -> str:
        return self.choose(self.compare("uno", x, x), x, value)

    def end(self, name: str, result: str, arguments: int = 1) -> Definitions:
        """The function with all that it uses, by name."""
        mangled = f"{name}_{MANGLED[self.type]}"
        given = ", ".join(f"{self.type} %{word}" for word in ("x", "y")[:arguments])
        body = "\n".join(self.lines)
        return self.helpers | {
            mangled: f"define internal {self.type} @{mangled}({given}) alwaysinline nounwind {{\n"
            f"{body}\n  ret {self.type} {result}\n}}"
        }


def typed(type: str) -> Body:
    """An empty body for ``f32`` or ``f64``."""
    return Body("float" if type == "f32" else "double")
