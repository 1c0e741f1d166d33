"""The text of a function in LLVM IR while it is written, and the functions that it calls."""

from __future__ import annotations

from evergrad.compiler.codegen.vecmath import functions as vecmath


class Code:
    """A function's text, and the helper functions it needs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.helpers: dict[str, str] = {}
        self._count = 0

    def fresh(self, word: str = "t") -> str:
        self._count += 1
        return f"{word}{self._count}"

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def op(self, text: str) -> str:
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def call(self, function: str, type: str, *args: str, flags: str = "contract") -> str:
        """Call an intrinsic (named without its type) or a helper of :mod:`.vecmath.functions`;
        ``flags`` are those of calls on floats."""
        if function.startswith("llvm."):
            mangled = f"{function}.{_mangled(type)}"
            given = ", ".join([type] * len(args))
            self.helpers[mangled] = f"declare {type} @{mangled}({given})"
        else:
            mangled = f"{function}_{_mangled(type)}"
            self.helpers.update(vecmath.definitions(function, _mangled(type)))
        words = ", ".join(f"{type} {a}" for a in args)
        return self.op(f"call {flags} {type} @{mangled}({words})" if type in FLOATS
                       else f"call {type} @{mangled}({words})")  # fmt: skip


FLOATS = ("float", "double")


def _mangled(type: str) -> str:
    return {"float": "f32", "double": "f64"}.get(type, type)
