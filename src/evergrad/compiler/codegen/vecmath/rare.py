"""Arguments for which a formula does not hold, and which are rare: the C library computes them.

A branch for single elements would keep LLVM from vectorizing a loop, and computing both ways for
all elements triples the time of a sine. :func:`library_where` is a call instead, for which LLVM
finds versions for whole vectors (``vector-function-abi-variant``): these test all lanes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evergrad.compiler.codegen.vecmath.body import MANGLED, PURE, Body, Definitions

# Whether the arguments (by name) are rare ones.
Condition = Callable[[Body, Sequence[str]], str]

_LANES = {"float": (2, 4, 8, 16), "double": (2, 4, 8)}


def library_where(b: Body, name: str, condition: Condition, args: Sequence[str], value: str) -> str:
    """What function ``name`` of the C library (``fmod``, for floats ``fmodf``) gives where a
    condition on the arguments holds, ``value`` elsewhere."""
    library = f"{name}f" if b.is_single else name
    function = f"vm_rare_{library}"
    b.helpers.update(_scalar(b.type, function, library, condition, len(args)))
    for lanes in _LANES[b.type]:
        b.helpers.update(_vector(b.type, function, condition, len(args), lanes))
    variants = ",".join(
        f"_ZGV_LLVM_N{lanes}{'v' * (len(args) + 1)}_{function}({function}_v{lanes})"
        for lanes in _LANES[b.type]
    )
    given = ", ".join(f"{b.type} {a}" for a in (*args, value))
    return b.op(f'call {b.type} @{function}({given}) "vector-function-abi-variant"="{variants}"')


def _words(count: int) -> list[str]:
    return [f"%a{i}" for i in range(count)]


def _defined(b: Body, head: str, count: int, result: str) -> str:
    """A function that branches to the rare case, whose result is known, or returns its last
    argument."""
    given = ", ".join(f"{b.type} {w}" for w in (*_words(count), "%value"))
    body = "\n".join(b.lines)
    return (
        f"{head}({given}) noinline {PURE} {{\n{body}\n  ret {b.type} {result}\n"
        f"usual:\n  ret {b.type} %value\n}}"
    )


def _scalar(
    type: str, function: str, library: str, condition: Condition, count: int
) -> Definitions:
    b = Body(type)
    found = condition(b, _words(count))
    b.lines += [f"  br i1 {found}, label %rare, label %usual", "rare:"]
    called = b.library(library, *_words(count))
    return b.helpers | {function: _defined(b, f"define internal {type} @{function}", count, called)}


def _vector(type: str, function: str, condition: Condition, count: int, lanes: int) -> Definitions:
    """The version for vectors. LLVM knows it by name alone, so that it must not be internal."""
    b = _VectorBody(type, lanes)
    mask = condition(b, _words(count))
    any_lane = f"llvm.vector.reduce.or.v{lanes}i1"
    b.helpers[any_lane] = f"declare i1 @{any_lane}(<{lanes} x i1>)"
    found = b.op(f"call i1 @{any_lane}(<{lanes} x i1> {mask})")
    b.lines += [f"  br i1 {found}, label %rare, label %usual", "rare:"]
    result = "%value"
    for lane in range(lanes):
        words = (*_words(count), "%value")
        each = [b.op(f"extractelement {b.type} {w}, i64 {lane}") for w in words]
        called = b.op(f"call {type} @{function}({', '.join(f'{type} {e}' for e in each)})")
        result = b.op(f"insertelement {b.type} {result}, {type} {called}, i64 {lane}")
    name = f"{function}_v{lanes}"
    return b.helpers | {
        name: _defined(b, f"define weak_odr hidden {b.type} @{name}", count, result)
    }


class _VectorBody(Body):
    """Instructions of vectors: those that conditions need."""

    def __init__(self, element: str, lanes: int) -> None:
        super().__init__(element)
        self.element = element
        self.lanes = lanes
        self.type = f"<{lanes} x {element}>"
        self.truth = f"<{lanes} x i1>"

    def hex(self, value: float) -> str:
        each = f"{self.element} {Body(self.element).hex(value)}"
        return f"<{', '.join([each] * self.lanes)}>"

    def intrinsic(self, name: str, *args: str) -> str:
        mangled = f"llvm.{name}.v{self.lanes}{MANGLED[self.element]}"
        types = ", ".join([self.type] * len(args))
        self.helpers[mangled] = f"declare {self.type} @{mangled}({types})"
        given = ", ".join(f"{self.type} {a}" for a in args)
        return self.op(f"call {self.type} @{mangled}({given})")
