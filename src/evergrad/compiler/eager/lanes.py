"""Reads and writes at indices, and the largest few of rows, as loops with run-time extents.

Arrays are contiguous and read as ``[outer, extent, inner]``. Every function gives the number of
indices out of bounds that it met; these are neither read nor written, and the caller reports them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.native import jit
from evergrad.compiler.native.prototypes import functions_at
from evergrad.core import dtypes
from evergrad.extension import provides

# The largest number of elements of a row that topk keeps.
MOST_KEPT = 64

_ELEMENTS = {"float32": "float", "float64": "double", 4: "i32", 8: "i64", 2: "i16", 1: "i8"}
_WORDS = {
    "gather_elements": ("out", "x", "index", "outer", "extent", "many", "inner"),
    "take_elements": ("out", "x", "index", "outer", "extent", "many"),
    "take_rows": ("out", "x", "index", "outer", "extent", "many", "inner"),
    "put_elements": ("out", "x", "index", "outer", "extent", "many", "inner"),
    "put_rows": ("out", "x", "index", "outer", "extent", "many", "inner"),
    "scatter_add": ("out", "x", "index", "outer", "extent", "many", "inner"),
    "add_rows": ("out", "x", "index", "outer", "extent", "many", "inner"),
    "reverse": ("out", "x", "outer", "extent"),
    "squared_distances": ("out", "x", "outer", "extent", "inner"),
    "topk": ("out", "x", "outer", "extent", "kept"),
}
_POINTERS = ("out", "x", "index")


@provides("lane_kernel")
@cache
def lane_kernel(
    name: str, element: str | int, largest: bool = True
) -> tuple[Callable[..., int], Callable[..., int]] | None:
    """A function of addresses and extents, as :data:`_WORDS` lists them: one that keeps the GIL and
    one that releases it. ``None`` where there is no machine code. An element type is a name, or a
    number of bytes where elements are only moved."""
    if not jit.can_jit():
        return None
    builder = _Builder(name, element, largest)
    getattr(builder, name)()
    kernel = builder.kernel(name)
    address = jit.addresses([kernel])[kernel.name]
    words = [ctypes.c_void_p if w in _POINTERS else ctypes.c_int64 for w in _WORDS[name]]
    signature = (ctypes.c_int64, *words)
    return functions_at(address, signature)


class _Builder(KernelBuilder):
    """The IR of one function."""

    def __init__(self, name: str, element: str | int, largest: bool) -> None:
        Code.__init__(self)
        self.words = _WORDS[name]
        self.named = {word: f"%{word}" for word in self.words}
        self.largest = largest
        if isinstance(element, int):
            self.vector = Vector(_ELEMENTS[element], 64 // element, element)
        else:
            self.vector = vector_for(dtypes.float32 if element == "float32" else dtypes.float64)
        self.do("%missed = alloca i64")
        self.do("store i64 0, ptr %missed")

    # -- indices --------------------------------------------------------------------------------

    def index_at(self, position: str) -> tuple[str, str]:
        """An index, and whether it is in bounds."""
        address = self.op(f"getelementptr i64, ptr {self['index']}, i64 {position}")
        index = self.op(f"load i64, ptr {address}")
        return index, self.op(f"icmp ult i64 {index}, {self['extent']}")

    def note_missed(self, is_inside: str) -> None:
        missed = self.op("load i64, ptr %missed")
        more = self.op(f"zext i1 {self.op(f'xor i1 {is_inside}, true')} to i64")
        self.do(f"store i64 {self.add(missed, more)}, ptr %missed")

    def gather_elements(self) -> None:
        """``out[o, j, i] = x[o, index[o, j, i], i]``"""
        self.at_indices(lambda here, there: self.store(self.load(self.at(self["x"], there)),
                                                       self.at(self["out"], here)))  # fmt: skip

    def put_elements(self) -> None:
        """``out[o, index[o, j, i], i] = x[o, j, i]``, unless an index is out of bounds."""

        def put(here: str, there: str) -> None:
            self.store(self.load(self.at(self["x"], here)), self.at(self["out"], there))

        with self.unless_missed(self.mul(self["outer"], self["many"], self["inner"])):
            self.at_indices(put)

    def put_rows(self) -> None:
        """``out[o, index[j], :] = x[o, j, :]``, unless an index is out of bounds."""
        extent, many, inner = self["extent"], self["many"], self["inner"]
        with (
            self.unless_missed(many),
            self.loop(self["outer"]) as o,
            self.loop(many) as j,
        ):
            index, _ = self.index_at(j)
            row = self.at(self["out"], self.mul(self.add(self.mul(o, extent), index), inner))
            source = self.at(self["x"], self.mul(self.add(self.mul(o, many), j), inner))
            with self.loop(inner) as i:
                self.store(self.load(self.at(source, i)), self.at(row, i))

    @contextmanager
    def unless_missed(self, count: str) -> Iterator[None]:
        """Code that runs if all of so many indices are in bounds."""
        with self.loop(count) as j:
            self.note_missed(self.index_at(j)[1])
        missed = self.op("load i64, ptr %missed")
        with self.when(self.op(f"icmp eq i64 {missed}, 0")):
            yield

    def scatter_add(self) -> None:
        """``out[o, index[o, j, i], i] += x[o, j, i]``"""

        def add(here: str, there: str) -> None:
            address = self.at(self["out"], there)
            value = self.load(self.at(self["x"], here))
            held = self.load(address)
            self.store(self.op(f"fadd {self.vector.element} {held}, {value}"), address)

        self.at_indices(add)

    def at_indices(self, action: Callable[[str, str], None]) -> None:
        """An action for every index, with its own position and the one that it leads to."""
        extent, many, inner = self["extent"], self["many"], self["inner"]
        with self.loop(self["outer"]) as o, self.loop(many) as j:
            first = self.mul(self.add(self.mul(o, many), j), inner)
            whole = self.mul(o, extent)
            with self.loop(inner) as i:
                here = self.add(first, i)
                index, is_inside = self.index_at(here)
                with self.when(is_inside):
                    action(here, self.add(self.mul(self.add(whole, index), inner), i))
                self.note_missed(is_inside)

    def take_elements(self) -> None:
        """``out[o, j] = x[o, index[j]]``, unless an index is out of bounds."""
        extent, many = self["extent"], self["many"]
        with self.unless_missed(many), self.loop(self["outer"]) as o:
            target = self.at(self["out"], self.mul(o, many))
            row = self.at(self["x"], self.mul(o, extent))
            with self.loop(many) as j:
                address = self.op(f"getelementptr i64, ptr {self['index']}, i64 {j}")
                index = self.op(f"load i64, ptr {address}")
                self.store(self.load(self.at(row, index)), self.at(target, j))

    def take_rows(self) -> None:
        """``out[o, j, :] = x[o, index[j], :]``"""
        extent, many, inner = self["extent"], self["many"], self["inner"]
        with self.loop(self["outer"]) as o, self.loop(many) as j:
            index, is_inside = self.index_at(j)
            with self.when(is_inside):
                target = self.at(self["out"], self.mul(self.add(self.mul(o, many), j), inner))
                row = self.at(self["x"], self.mul(self.add(self.mul(o, extent), index), inner))
                with self.loop(inner) as i:
                    self.store(self.load(self.at(row, i)), self.at(target, i))
            self.note_missed(is_inside)

    def add_rows(self) -> None:
        """``out[o, index[j], :] += x[o, j, :]``"""
        extent, many, inner = self["extent"], self["many"], self["inner"]
        element = self.vector.element
        with self.loop(self["outer"]) as o, self.loop(many) as j:
            index, is_inside = self.index_at(j)
            with self.when(is_inside):
                row = self.at(self["out"], self.mul(self.add(self.mul(o, extent), index), inner))
                source = self.at(self["x"], self.mul(self.add(self.mul(o, many), j), inner))
                with self.loop(inner) as i:
                    held, value = self.load(self.at(row, i)), self.load(self.at(source, i))
                    self.store(self.op(f"fadd {element} {held}, {value}"), self.at(row, i))
            self.note_missed(is_inside)

    def reverse(self) -> None:
        """``out[o, extent - 1 - j] = x[o, j]``"""
        extent, lanes, kind = self["extent"], self.vector.lanes, self.vector.type
        whole = self.op(f"and i64 {extent}, {-lanes}")
        order = ", ".join(f"i32 {lane}" for lane in reversed(range(lanes)))
        with self.loop(self["outer"]) as o:
            first = self.mul(o, extent)
            row = self.at(self["x"], first)
            end = self.at(self["out"], self.add(first, extent))
            with self.loop(whole, lanes) as j:
                turned = self.op(
                    f"shufflevector {kind} {self.load_vector(self.at(row, j))}, {kind} poison, "
                    f"<{lanes} x i32> <{order}>"
                )
                self.store_vector(turned, self.at(end, self.sub(-lanes, j)))
            with self.loop(extent, 1, whole) as j:
                self.store(self.load(self.at(row, j)), self.at(end, self.sub(-1, j)))

    def squared_distances(self) -> None:
        """``out[o, i]``, of float64: the squared distances of ``x[o, :, i]`` from their mean, added
        in float64."""
        extent, inner, element = self["extent"], self["inner"], self.vector.element
        count = self.op(f"sitofp i64 {extent} to double")
        with self.loop(self["outer"]) as o, self.loop(inner) as i:
            column = self.at(self["x"], self.add(self.mul(o, extent, inner), i))

            def number(j: str, column: str = column) -> str:
                value = self.load(self.at(column, self.mul(j, inner)))
                return value if element == "double" else self.op(f"fpext float {value} to double")

            with self.carrying_loop(extent, [("double", "0.0")]) as (j, total):
                total.after = [self.op(f"fadd double {total.values[0]}, {number(j)}")]
            mean = self.op(f"fdiv double {total.after[0]}, {count}")
            with self.carrying_loop(extent, [("double", "0.0")]) as (j, squares):
                distance = self.op(f"fsub double {number(j)}, {mean}")
                square = self.op(f"fmul double {distance}, {distance}")
                squares.after = [self.op(f"fadd double {squares.values[0]}, {square}")]
            place = self.add(self.mul(o, inner), i)
            address = self.op(f"getelementptr double, ptr {self['out']}, i64 {place}")
            self.do(f"store double {squares.after[0]}, ptr {address}")

    # -- the largest few ------------------------------------------------------------------------

    def topk(self) -> None:
        """Positions of the first ``kept`` of each row in descending order, of equal ones the first;
        ascending where the smallest are wanted. NaN is the largest."""
        integer = f"i{8 * self.vector.size}"
        lanes, extent = self.vector.lanes, self["extent"]
        self.do(f"%keys = alloca {integer}, i64 {MOST_KEPT}")
        last = self.op(f"getelementptr {integer}, ptr %keys, i64 {self.sub(self['kept'], 1)}")
        whole = self.op(f"and i64 {extent}, {-lanes}")
        with self.loop(self["outer"]) as o:
            row = self.at(self["x"], self.mul(o, extent))
            places = self.op(f"getelementptr i64, ptr {self['out']}, i64 {self.mul(o, '%kept')}")
            with self.loop(self["kept"]) as k:
                address = self.op(f"getelementptr {integer}, ptr %keys, i64 {k}")
                self.do(f"store {integer} {-(1 << (8 * self.vector.size - 1))}, ptr {address}")
            with self.loop(whole, lanes) as start:
                least = self.op(f"load {integer}, ptr {last}")
                keys = self.keys(self.load_vector(self.at(row, start)), True)
                better = self.op(
                    f"icmp sgt {self.vector.of(integer)} {keys}, {self.splat(least, integer)}"
                )
                bits = self.op(f"bitcast {self.vector.of('i1')} {better} to i{lanes}")
                with self.when(self.op(f"icmp ne i{lanes} {bits}, 0")):
                    self.insert_all(row, places, start, self.add(start, lanes), last)
            self.insert_all(row, places, whole, extent, last)

    def insert_all(self, row: str, places: str, first: str, end: str, last: str) -> None:
        """Insert each element from one to another that is better than the last one kept."""
        integer = f"i{8 * self.vector.size}"
        with self.loop(end, 1, first) as position:
            key = self.keys(self.load(self.at(row, position)), False)
            least = self.op(f"load {integer}, ptr {last}")
            with self.when(self.op(f"icmp sgt {integer} {key}, {least}")):
                start = [(integer, key), ("i64", position)]
                with self.carrying_loop(self["kept"], start) as (k, held):
                    held.after = self.exchanged(k, places, *held.values)

    def exchanged(self, k: str, places: str, key: str, position: str) -> list[str]:
        """Put the better of an element and the one kept at ``k`` there; gives the other one."""
        integer = f"i{8 * self.vector.size}"
        keys_at = self.op(f"getelementptr {integer}, ptr %keys, i64 {k}")
        place_at = self.op(f"getelementptr i64, ptr {places}, i64 {k}")
        kept, there = (
            self.op(f"load {integer}, ptr {keys_at}"),
            self.op(f"load i64, ptr {place_at}"),
        )
        # Of equal ones the first; what was displaced goes before what stood behind it.
        before = self.op(f"icmp slt i64 {position}, {there}")
        equal = self.op(f"icmp eq {integer} {key}, {kept}")
        greater = self.op(f"icmp sgt {integer} {key}, {kept}")
        better = self.op(f"or i1 {greater}, {self.op(f'and i1 {equal}, {before}')}")
        for type, new, old, address in (
            (integer, key, kept, keys_at), ("i64", position, there, place_at)
        ):  # fmt: skip
            chosen = self.op(f"select i1 {better}, {type} {new}, {type} {old}")
            self.do(f"store {type} {chosen}, ptr {address}")
        return [
            self.op(f"select i1 {better}, {integer} {kept}, {integer} {key}"),
            self.op(f"select i1 {better}, i64 {there}, i64 {position}"),
        ]

    def keys(self, value: str, is_vector: bool) -> str:
        """Floats as integers of the same order, the smaller the larger where these are wanted."""
        bits = 8 * self.vector.size
        integer, float_type = f"i{bits}", self.vector.element
        truth = "i1"
        if is_vector:
            integer, float_type, truth = map(self.vector.of, (integer, float_type, truth))
        nan = 0x7FC00000 if bits == 32 else 0x7FF8000000000000

        def number(n: int) -> str:
            return self.splat(str(n), f"i{bits}") if is_vector else str(n)

        raw = self.op(f"bitcast {float_type} {value} to {integer}")
        # Zeros of both signs are equal.
        is_zero = self.op(f"fcmp oeq {float_type} {value}, zeroinitializer" if is_vector
                          else f"fcmp oeq {float_type} {value}, 0.0")  # fmt: skip
        raw = self.op(f"select {truth} {is_zero}, {integer} {number(0)}, {integer} {raw}")
        sign = self.op(f"ashr {integer} {raw}, {number(bits - 1)}")
        flip = self.op(f"and {integer} {sign}, {number((1 << (bits - 1)) - 1)}")
        ordered = self.op(f"xor {integer} {raw}, {flip}")
        is_nan = self.op(f"fcmp uno {float_type} {value}, {value}")
        key = self.op(f"select {truth} {is_nan}, {integer} {number(nan)}, {integer} {ordered}")
        return key if self.largest else self.op(f"xor {integer} {key}, {number(-1)}")

    def kernel(self, kind: str) -> Kernel:
        body = "\n".join(self.lines)
        arguments = ", ".join(
            f"{'ptr noalias' if w in _POINTERS else 'i64'} %{w}" for w in self.words
        )
        ir = (
            f"define i64 @SELF({arguments}) nounwind {{\nentry:\n{body}\n"
            "  %missed.all = load i64, ptr %missed\n  ret i64 %missed.all\n}\n"
        )
        name = jit.name_of(ir + "".join(self.helpers.values()), kind)
        return Kernel(name, ir.replace("@SELF", f"@{name}"), self.helpers)
