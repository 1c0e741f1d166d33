"""All lowerings to native kernels: the one list of the modules that register some."""

from __future__ import annotations

from evergrad.compiler.kernels import (  # noqa: F401
    checks,
    embedding_grad,
    flip,
    indexed,
    items,
    lanes,
    random_masks,
    random_numbers,
    recurrences,
    row_writes,
    sort,
    updates,
)
from evergrad.compiler.kernels.attention import lower as attention  # noqa: F401
from evergrad.compiler.kernels.attention import lower_sequences  # noqa: F401
from evergrad.compiler.kernels.attention import paged as paged_attention  # noqa: F401
from evergrad.compiler.kernels.conv import select as conv  # noqa: F401
from evergrad.compiler.kernels.gemm import packed as packed_linear  # noqa: F401
from evergrad.compiler.kernels.gemm import pairs  # noqa: F401
from evergrad.compiler.kernels.gemm import select as gemm  # noqa: F401
from evergrad.compiler.kernels.pooling import max_pool_grad, reduce, transposes, uneven  # noqa: F401
from evergrad.compiler.kernels.recurrent import lower as recurrent  # noqa: F401
from evergrad.compiler.schedule.lowering_registry import registered_lowerings

LOWERINGS = registered_lowerings()
