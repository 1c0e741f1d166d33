"""Products that start from a bias: one row that is added to every row of a product.

If nothing but such a sum reads a product, its tiles begin with the row in their registers instead
of zeros, and write the sum where it is wanted. The kernel is that of the product, called by its
address.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.blocked import FIRST
from evergrad.compiler.native.jit import name_of
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.nodes import Group
from evergrad.core.trace import Var
from evergrad.ops.rows.elementwise.basic import ADD

_WORD = 8
# The product's factors and its result.
_POINTERS = 3


def bias_of(group: Group, product: Var, values: DefUse) -> Var | None:
    """The row that is all that a group adds to a product."""
    eqn, *others = group.members
    if others or eqn.op is not ADD or eqn.attrs or len(eqn.args) != 2:
        return None
    given = [arg for arg in eqn.args if isinstance(arg, Var) and values.root(arg) is not product]
    if len(given) != 1 or not all(isinstance(arg, Var) for arg in eqn.args):
        return None
    (bias,) = given
    same = {bias.type.dtype, product.type.dtype, eqn.outs[0].type.dtype}
    columns = product.type.shape[-1]
    is_row = bias.type.shape[-1:] == (columns,) and bias.type.numel == columns
    return bias if is_row and len(same) == 1 and bias.layout.flags.c_contiguous else None


def biased(product: Kernel) -> Kernel:
    """The kernel of a product that is given factors, result, and the row to start from."""
    body = _text(len(product.numbers))
    name = name_of(body, "gemm_bias")
    memcpy = "llvm.memcpy.p0.p0.i64"
    helpers = {memcpy: f"declare void @{memcpy}(ptr, ptr, i64, i1)"}
    made = Kernel(name, body.replace("@SELF", f"@{name}"), helpers)
    made.numbers = [*product.numbers, 0]
    made.calls = {len(product.numbers): product}
    made.chunks, made.scratch = product.chunks, product.scratch
    return made


@cache
def _text(numbers: int) -> str:
    code = Code()

    def at(block: str, word: int) -> str:
        return code.op(f"getelementptr i64, ptr {block}, i64 {word}")

    block = code.op(f"alloca i64, i64 {_POINTERS + numbers}")
    for to, source, count in ((0, 0, _POINTERS), (_POINTERS, _POINTERS + 1, numbers)):
        places = f"ptr {at(block, to)}, ptr {at('%args', source)}"
        code.do(f"call void @llvm.memcpy.p0.p0.i64({places}, i64 {count * _WORD}, i1 false)")
    bias = code.op(f"load i64, ptr {at('%args', _POINTERS)}")
    code.do(f"store i64 {bias}, ptr {at(block, _POINTERS + FIRST)}")
    function = code.op(f"load ptr, ptr {at('%args', _POINTERS + 1 + numbers)}")
    code.do(f"call void {function}(ptr {block}, i64 %chunk, ptr %scratch)")
    lines = "\n".join(code.lines)
    return (
        "define void @SELF(ptr %args, i64 %chunk, ptr %scratch) nounwind {\nentry:\n"
        f"{lines}\n  ret void\n}}\n"
    )
