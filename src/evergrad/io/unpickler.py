"""A machine that runs the instructions of a pickle and can do nothing but make data.

Owns the stack, the marks and the memo. It has no imports to make and no function to call: names,
calls, new objects and their state are all passed to a :class:`Maker`, which decides. Each
instruction takes constant time or time in proportion to bytes that are there, so a file of n bytes
is read in the order of n steps.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, Protocol

from evergrad.errors import FileFormatError

_DEEPEST_MARK = 10_000
_LONGEST_LINE = 4096
_NEWEST_PROTOCOL = 5


class Maker(Protocol):
    """What turns names and arguments into objects, or refuses."""

    def find(self, module: str, name: str) -> Any: ...
    def call(self, function: object, args: object) -> Any: ...
    def new(self, cls: object, args: object, kwargs: object) -> Any: ...
    def build(self, instance: object, state: object) -> None: ...
    def fetch(self, identity: object) -> Any: ...
    def append(self, target: object, items: list[Any]) -> None: ...
    def insert(self, target: object, items: list[object]) -> None: ...
    def add(self, target: object, items: list[object]) -> None: ...
    def frozen(self, items: list[object]) -> Any: ...


class Stream:
    """Bytes in order, never more of them than there are."""

    def __init__(self, file: Any, left: int) -> None:
        self._file = file
        self.left: int = left

    def read(self, count: int) -> bytes:
        if count > self.left:
            raise FileFormatError(
                "the pickle ends in the middle of an object: the file is truncated or corrupted."
            )
        self.left -= count
        data: bytes = self._file.read(count)
        if len(data) != count:
            raise FileFormatError("the file became shorter while it was read.")
        return data

    def line(self) -> bytes:
        data: bytes = self._file.readline(min(self.left, _LONGEST_LINE))
        self.left -= len(data)
        if not data.endswith(b"\n"):
            raise FileFormatError("a name in the pickle has no end: the file is corrupted.")
        return data[:-1]


class Interpreter:
    """Runs one pickle."""

    def __init__(self, stream: Stream, maker: Maker, encoding: str = "utf-8") -> None:
        self.stream = stream
        self.maker = maker
        self.encoding = encoding
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, object] = {}

    def run(self) -> Any:
        """The object the pickle describes."""
        read = self.stream.read
        stop = pickle.STOP[0]
        while True:
            code = read(1)[0]
            if code == stop:
                return self.pop()
            operate = _OPERATIONS.get(code)
            if operate is None:
                raise FileFormatError(
                    f"the pickle has an instruction {bytes([code])!r} that is not read here: the "
                    "file is corrupted, or was not written by save()."
                )
            operate(self)

    # -- the stack --------------------------------------------------------------------------

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        self._require(1)
        return self.stack.pop()

    def top(self) -> Any:
        self._require(1)
        return self.stack[-1]

    def pop_many(self, count: int) -> tuple[object, ...]:
        self._require(count)
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def _require(self, count: int) -> None:
        if len(self.stack) < count:
            raise FileFormatError("the pickle takes more than it has made: the file is corrupted.")

    def mark(self) -> None:
        if len(self.below) >= _DEEPEST_MARK:
            raise FileFormatError(
                f"the pickle nests deeper than {_DEEPEST_MARK} levels: the file is corrupted."
            )
        self.below.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[object]:
        """Everything made since the last mark."""
        if not self.below:
            raise FileFormatError(
                "the pickle closes what it has not opened: the file is corrupted."
            )
        items, self.stack = self.stack, self.below.pop()
        return items

    def push_marked(self, kind: Callable[[list[Any]], object]) -> None:
        items = self.pop_mark()
        self.push(kind(items))

    # -- numbers and text -------------------------------------------------------------------

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.stream.read(width), "little")

    def text(self, width: int) -> str:
        """A string whose length is given by that many bytes."""
        return _decoded(self.stream.read(self.unsigned(width)), "utf-8", "surrogatepass")

    def old_string(self, width: int) -> str | bytes:
        """A string of Python 2, which did not say whether it is text."""
        data = self.stream.read(self.unsigned(width))
        return data if self.encoding == "bytes" else _decoded(data, self.encoding, "strict")

    def signed(self, width: int) -> int:
        return int.from_bytes(self.stream.read(width), "little", signed=True)

    # -- the memo ---------------------------------------------------------------------------

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise FileFormatError(
                "the pickle refers to what it has not made: the file is corrupted, or was not "
                "written by save()."
            )
        self.stack.append(self.memo[index])

    def remember(self, index: int) -> None:
        self.memo[index] = self.top()

    # -- instructions that need more than a line ----------------------------------------------

    def protocol(self) -> None:
        found = self.unsigned(1)
        if found > _NEWEST_PROTOCOL:
            raise FileFormatError(f"unsupported pickle protocol: {found}")

    def global_by_lines(self) -> None:
        module, name = (_decoded(self.stream.line(), "utf-8", "strict") for _ in range(2))
        self.push(self.maker.find(module, name))

    def global_by_stack(self) -> None:
        module, name = self.pop_many(2)
        if type(module) is not str or type(name) is not str:
            raise FileFormatError("a name in the pickle is not text: the file is corrupted.")
        self.push(self.maker.find(module, name))

    def call(self) -> None:
        function, args = self.pop_many(2)
        self.push(self.maker.call(function, args))

    def new(self) -> None:
        cls, args = self.pop_many(2)
        self.push(self.maker.new(cls, args, {}))

    def new_with_keywords(self) -> None:
        self.push(self.maker.new(*self.pop_many(3)))

    def build(self) -> None:
        state = self.pop()
        self.maker.build(self.top(), state)

    def append(self) -> None:
        item = self.pop()
        self.maker.append(self.top(), [item])

    def extend(self) -> None:
        items = self.pop_mark()
        self.maker.append(self.top(), items)

    def set_item(self) -> None:
        items = list(self.pop_many(2))
        self.maker.insert(self.top(), items)

    def set_items(self) -> None:
        items = self.pop_mark()
        self.maker.insert(self.top(), items)

    def add_items(self) -> None:
        items = self.pop_mark()
        self.maker.add(self.top(), items)


def _decoded(data: bytes, encoding: str, errors: str) -> str:
    try:
        return data.decode(encoding, errors)
    except UnicodeDecodeError:
        raise FileFormatError(
            f"text in the pickle is not {encoding}: the file is corrupted, or was written by "
            "Python 2; try load(..., weights_only=False, encoding='latin1')."
        ) from None


Operation = Callable[[Interpreter], Any]

# What each instruction does. Those that are missing here make pickles of protocols 0 and 1, refer
# to registries of the reading process, or share buffers: save() writes none of them.
_BY_OPCODE: dict[bytes, Operation] = {
    pickle.PROTO: Interpreter.protocol,
    pickle.FRAME: lambda m: m.stream.read(8),
    # the stack
    pickle.MARK: Interpreter.mark,
    pickle.POP: Interpreter.pop,
    pickle.POP_MARK: Interpreter.pop_mark,
    pickle.DUP: lambda m: m.push(m.top()),
    # the memo
    pickle.BINGET: lambda m: m.recall(m.unsigned(1)),
    pickle.LONG_BINGET: lambda m: m.recall(m.unsigned(4)),
    pickle.BINPUT: lambda m: m.remember(m.unsigned(1)),
    pickle.LONG_BINPUT: lambda m: m.remember(m.unsigned(4)),
    pickle.MEMOIZE: lambda m: m.remember(len(m.memo)),
    # constants and numbers
    pickle.NONE: lambda m: m.push(None),
    pickle.NEWTRUE: lambda m: m.push(True),
    pickle.NEWFALSE: lambda m: m.push(False),
    pickle.BININT: lambda m: m.push(m.signed(4)),
    pickle.BININT1: lambda m: m.push(m.unsigned(1)),
    pickle.BININT2: lambda m: m.push(m.unsigned(2)),
    pickle.LONG1: lambda m: m.push(m.signed(m.unsigned(1))),
    pickle.LONG4: lambda m: m.push(m.signed(m.unsigned(4))),
    pickle.BINFLOAT: lambda m: m.push(struct.unpack(">d", m.stream.read(8))[0]),
    # text and bytes
    pickle.SHORT_BINUNICODE: lambda m: m.push(m.text(1)),
    pickle.BINUNICODE: lambda m: m.push(m.text(4)),
    pickle.BINUNICODE8: lambda m: m.push(m.text(8)),
    pickle.SHORT_BINSTRING: lambda m: m.push(m.old_string(1)),
    pickle.BINSTRING: lambda m: m.push(m.old_string(4)),
    pickle.SHORT_BINBYTES: lambda m: m.push(m.stream.read(m.unsigned(1))),
    pickle.BINBYTES: lambda m: m.push(m.stream.read(m.unsigned(4))),
    pickle.BINBYTES8: lambda m: m.push(m.stream.read(m.unsigned(8))),
    pickle.BYTEARRAY8: lambda m: m.push(bytearray(m.stream.read(m.unsigned(8)))),
    # containers
    pickle.EMPTY_TUPLE: lambda m: m.push(()),
    pickle.TUPLE1: lambda m: m.push(m.pop_many(1)),
    pickle.TUPLE2: lambda m: m.push(m.pop_many(2)),
    pickle.TUPLE3: lambda m: m.push(m.pop_many(3)),
    pickle.TUPLE: lambda m: m.push_marked(tuple),
    pickle.EMPTY_LIST: lambda m: m.push([]),
    pickle.APPEND: Interpreter.append,
    pickle.APPENDS: Interpreter.extend,
    pickle.EMPTY_DICT: lambda m: m.push({}),
    pickle.SETITEM: Interpreter.set_item,
    pickle.SETITEMS: Interpreter.set_items,
    pickle.EMPTY_SET: lambda m: m.push(set()),
    pickle.ADDITEMS: Interpreter.add_items,
    pickle.FROZENSET: lambda m: m.push_marked(m.maker.frozen),
    # names and what is made of them
    pickle.GLOBAL: Interpreter.global_by_lines,
    pickle.STACK_GLOBAL: Interpreter.global_by_stack,
    pickle.REDUCE: Interpreter.call,
    pickle.NEWOBJ: Interpreter.new,
    pickle.NEWOBJ_EX: Interpreter.new_with_keywords,
    pickle.BUILD: Interpreter.build,
    pickle.BINPERSID: lambda m: m.push(m.maker.fetch(m.pop())),
}
_OPERATIONS = {code[0]: operation for code, operation in _BY_OPCODE.items()}
