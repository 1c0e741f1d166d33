"""Shapes and element types of the values of a graph, found by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

from evergrad.core.dtypes import dtype
from evergrad.core.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
)
from evergrad.core.shapes import Size
from evergrad.core.tensor import Tensor

from ..graph_module import GraphModule
from ..interpreter import Interpreter
from ..node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What is known about a tensor without its elements."""

    shape: Size
    dtype: dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: memory_format | None
    is_quantized: bool
    qparams: dict[str, object]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """The metadata of a tensor."""
    fitting = None
    for candidate, ranks in ((contiguous_format, None), (channels_last, 4), (channels_last_3d, 5)):
        if ranks in (None, result.ndim) and result.is_contiguous(memory_format=candidate):
            fitting = candidate
            break
    return TensorMetadata(
        result.shape, result.dtype, result.requires_grad, tuple(result.stride()),
        fitting if include_contiguity else None, False, {},
    )  # fmt: skip


class ShapeProp(Interpreter):
    """Runs a graph and writes ``tensor_meta`` and ``type`` into the ``meta`` of its nodes."""

    def __init__(self, gm: GraphModule, fake_mode: object = None) -> None:
        super().__init__(gm)

    def run_node(self, n: Node) -> Any:
        try:
            result = super().run_node(n)
        except Exception as error:
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}"
            ) from error
        tensors: list[Tensor] = []

        def extract(value: object) -> object:
            if not isinstance(value, Tensor):
                return value
            tensors.append(value)
            return _extract_tensor_metadata(value)

        meta = map_aggregate(result, extract)
        if tensors:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: object) -> Any:
        """Run the module; gives its result."""
        return super().run(*args)


__all__ = ["ShapeProp", "TensorMetadata"]
