"""How sparse tensors read on the screen."""

from __future__ import annotations

from evergrad.core import dtypes
from evergrad.core.printing import format_parts
from evergrad.core.tensor import Tensor
from evergrad.sparse.pattern import Patterned

_CLEAR_DTYPES = (dtypes.int64, dtypes.bool_, dtypes.complex64)


def sparse_text(tensor: Patterned, parts: dict[str, Tensor], *, new_line: bool) -> str:
    """The parts, then what else there is to say."""
    empty = not parts["values"].numel()
    default = dtypes.get_default_dtype()
    suffixes = [f"size={tuple(tensor._type.shape)}", f"nnz={tensor._nnz()}"]
    if tensor.dtype is not default and (empty or tensor.dtype not in _CLEAR_DTYPES):
        suffixes.append(f"dtype={tensor.dtype}")
    suffixes.append(f"layout={tensor.layout}")
    node = tensor.grad_fn
    if node is not None:
        suffixes.append(f"grad_fn=<{node.name()}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    arrays = {name: part.detach().array() for name, part in parts.items()}
    return format_parts(arrays, suffixes, prefix="tensor(", new_line=new_line)
