"""Epilogues of products, applied to rectangles of C as soon as these are complete.

A product kernel serves all products of an element type. It takes the address of a function of tiles
(:mod:`.codegen.epilogue_tiles`) as an argument, and calls it where a rectangle of C has its sums,
which is in cache then. :func:`with_epilogue` makes a kernel that owns the arguments of both.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.argument_blocks import (
    argument,
    call_kernel,
    copy_arguments,
    new_block,
    put,
    word_of,
)
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.epilogue_tiles import TILE, call_on_tile
from evergrad.compiler.codegen.kernel import Kernel, kernel_of
from evergrad.compiler.codegen.kernel_builder import KernelBuilder

# The last arguments of every product kernel: the address of the function of tiles (0: there is no
# epilogue), that of its arguments, and that of the rectangle among them.
EPILOGUE = ("epilogue", "epilogue_arguments", "epilogue_tile")
NO_EPILOGUE = (0, 0, 0)
# The product's factors and its result.
_POINTERS = 3


def epilogue_pointers(ir: KernelBuilder) -> list[str]:
    """The epilogue's function, or null, its arguments, and the rectangle among these."""
    return [ir.op(f"inttoptr i64 {ir[name]} to ptr") for name in EPILOGUE]


def apply_epilogue(ir: KernelBuilder, row: str, rows: str, column: str, columns: str) -> None:
    """Apply the epilogue, if there is one, to a rectangle of C that is complete."""
    with ir.when(ir.op(f"icmp ne i64 {ir['epilogue']}, 0")):
        function, arguments, place = epilogue_pointers(ir)
        call_on_tile(ir, function, arguments, place, (row, rows, column, columns))


def with_epilogue(product: Kernel, epilogue: Kernel, pointers: int, numbers: list[int]) -> Kernel:
    """The kernel of a product with an epilogue, which takes further ``pointers`` and ``numbers``,
    the last of these for the rectangle. Its own pointers are A, B, C and the further ones."""
    emitted = _kernel(len(product.numbers), pointers, len(numbers))
    made = Kernel(emitted.name, emitted.ir, emitted.helpers)
    made.numbers = [*product.numbers, *numbers, 0, 0]
    count = len(made.numbers)
    made.calls = {count - 2: epilogue, count - 1: product}
    made.chunks, made.scratch = product.chunks, product.scratch
    made.products = product.products
    return made


@cache
def _kernel(product_numbers: int, pointers: int, numbers: int) -> Kernel:
    code = Code()
    given = _POINTERS + pointers
    function = given + product_numbers + numbers
    product = new_block(code, _POINTERS + product_numbers)
    copy_arguments(code, product, 0, 0, _POINTERS)
    copy_arguments(code, product, _POINTERS, given, product_numbers)
    of_tiles = new_block(code, 1 + pointers + numbers)
    copy_arguments(code, of_tiles, 0, _POINTERS - 1, 1 + pointers)
    copy_arguments(code, of_tiles, 1 + pointers, given + product_numbers, numbers)
    tile = word_of(code, of_tiles, 1 + pointers + numbers - len(TILE))
    first = _POINTERS + product_numbers - len(EPILOGUE)
    put(code, product, first, argument(code, "i64", function))
    put(code, product, first + 1, of_tiles, "ptr")
    put(code, product, first + 2, tile, "ptr")
    call_kernel(code, function + 1, product)
    return kernel_of(code, "gemm_with_epilogue")
