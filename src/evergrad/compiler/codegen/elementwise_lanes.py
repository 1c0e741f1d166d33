"""How a register of elements of a row is computed: the builder of :mod:`.codegen.elementwise`, lane
by lane.

For kernels that are written register by register, such as convolutions.
"""

from __future__ import annotations

from evergrad.compiler.codegen.elementwise import Element, constant
from evergrad.compiler.codegen.ir_builder import KernelBuilder
from evergrad.compiler.codegen.vecmath import functions as vecmath
from evergrad.core import dtypes


class Lanes(Element):
    """Emits the operations of a register of floats in place of one element."""

    __slots__ = ("text",)

    def __init__(self, text: KernelBuilder) -> None:
        found = dtypes.float32 if text.vector.element == "float" else dtypes.float64
        super().__init__(text, found, found, {})
        self.text: KernelBuilder = text

    @property
    def type(self) -> str:
        return self.text.vector.type

    def number(self, value: object) -> str:
        vector = self.text.vector
        each = f"{vector.element} {constant(value, self.found)}"
        return f"<{', '.join([each] * vector.lanes)}>"

    def call(self, function: str, *args: str) -> str:
        many, mangled = self.type, self.text.vector.mangled
        given = ", ".join(f"{many} {arg}" for arg in args)
        name = f"{function}.{mangled}"
        if function.startswith("llvm."):
            types = ", ".join([many] * len(args))
            self.text.helpers[name] = f"declare {many} @{name}({types})"
        else:
            self.text.helpers.update(vecmath.vector_definitions(function, self.text.vector.lanes))
        return self.op(f"call {many} @{name}({given})")

    def choose(self, condition: str, a: str, b: str) -> str:
        masks = self.text.vector.of("i1")
        return self.op(f"select {masks} {condition}, {self.type} {a}, {self.type} {b}")
