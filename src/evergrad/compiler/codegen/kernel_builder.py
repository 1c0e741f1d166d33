"""Builder of kernels: the IR builder with named arguments."""

from __future__ import annotations

from collections.abc import Sequence

from evergrad.compiler.codegen.ir_builder import CACHE_LINE, IRBuilder, Vector
from evergrad.compiler.codegen.kernel import Kernel, kernel_of

# The least and the most operations of a chunk, where the number of items allows it.
_MIN_CHUNK_WORK = 1 << 16
MAX_CHUNK_WORK = 1 << 21
# Chunks that are enough for any number of threads.
ENOUGH_CHUNKS = 16


class KernelBuilder(IRBuilder):
    """IR of a kernel with named ``pointers``, then ``numbers``; further numbers are tables, whose
    address is :meth:`table`."""

    def __init__(self, vector: Vector, pointers: Sequence[str], numbers: Sequence[str]) -> None:
        super().__init__(vector)
        self.count: int = len(pointers) + len(numbers)
        self.named: dict[str, str] = {}
        for index, name in enumerate((*pointers, *numbers)):
            address = self.op(f"getelementptr i64, ptr %args, i64 {index}")
            type = "ptr" if index < len(pointers) else "i64"
            self.named[name] = self.op(f"load {type}, ptr {address}")
        self.scratch: str = self.aligned("%scratch")

    def __getitem__(self, name: str) -> str:
        return self.named[name]

    def table(self, start: str | int = 0) -> str:
        """The address of a number after the named ones."""
        return self.op(f"getelementptr i64, ptr %args, i64 {self.add(start, self.count)}")

    def number(self, table: str, index: str | int) -> str:
        address = self.op(f"getelementptr i64, ptr {table}, i64 {index}")
        return self.op(f"load i64, ptr {address}")

    def items(self, chunk: str, per_chunk: str, items: str) -> tuple[str, str]:
        """The first item of a chunk, and its end."""
        first = self.mul(chunk, per_chunk)
        return first, self.least(self.add(first, per_chunk), items)

    def kernel(self, kind: str) -> Kernel:
        """The finished kernel, without numbers."""
        return kernel_of(self, kind)


def with_numbers(
    made: Kernel, numbers: Sequence[int], tables: Sequence[int], chunks: int, scratch: int = 0
) -> Kernel:
    """A kernel of the same IR with numbers of its own."""
    kernel = Kernel(made.name, made.ir, made.helpers)
    kernel.numbers = [*numbers, *tables]
    kernel.chunks = chunks
    kernel.scratch = scratch + CACHE_LINE if scratch else 0
    return kernel


def items_per_chunk(items: int, work: int) -> int:
    """The items of a chunk, given the work of one."""
    work = max(work, 1)
    wanted = max(-(-items // ENOUGH_CHUNKS), _MIN_CHUNK_WORK // work)
    return max(1, min(wanted, MAX_CHUNK_WORK // work, items))
