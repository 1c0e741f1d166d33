"""The element type of every op of PyTorch's database under autocast: a sample of each."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from tests.opinfo.replay import Replay, leaves, name_of

import evergrad

# Ops whose element type is another one here, with the reason.
EXCEPTIONS = {
    "_batch_norm_with_update": "no such operator",
    "_softmax_backward_data": "takes the element type that is asked for",
    "chalf": "complex numbers of 16-bit parts are storage",
    "complex": "complex numbers of 16-bit parts are storage",
    "hash_tensor": "no such function",
    "nn.functional.linear_cross_entropy.chunked": "its pieces have no policy in PyTorch",
    "nn.functional.linear_cross_entropy.chunked_none": "likewise",
    "sparse.mm.reduce": "products of sparse matrices have one reduction, the sum",
}


def types_of(value: Any, library: Any) -> list[str]:
    return [name_of(t.dtype) for t in leaves([value], library.Tensor)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_element_types_are_those_of_torch(part: int, torch: ModuleType) -> None:
    """Where PyTorch has code for the element types at all. A quarter of the ops in each of four
    cases: arguments in float32 or in the lower precision, which is float16 or bfloat16."""
    given, lower = ["float32", "lower"][part % 2], ["float16", "bfloat16"][part // 2]
    replay, different = Replay(torch, 1), []
    for op in replay.ops("float32", every=4, first=part):
        if op.full_name in EXCEPTIONS:
            continue
        for sample in replay.samples(op, "float32", False):
            call = sample.input, sample.args, sample.kwargs
            if given == "lower":
                call = lowered(call, torch, getattr(torch, lower))
            ours = replay.translate(call)
            try:
                with torch.autocast("cpu", dtype=getattr(torch, lower)):
                    expected = types_of(replay.run(torch, op.op, call), torch)
            except Exception:  # PyTorch has no code for it
                continue
            try:
                with evergrad.autocast("cpu", dtype=getattr(evergrad, lower)):
                    found: Any = types_of(
                        replay.run(evergrad, replay.translate(op.op), ours), evergrad
                    )
            except Exception as error:
                found = error
            if found != expected:
                different.append(f"{op.full_name}: {found!r} instead of {expected}")
    assert not different, "\n".join(different)


def lowered(value: Any, torch: Any, dtype: Any) -> Any:
    """The float32 tensors of nested arguments in the lower precision."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.dtype is torch.float32 else value
    if type(value) in (list, tuple):
        return type(value)(lowered(v, torch, dtype) for v in value)
    if isinstance(value, dict):
        return {key: lowered(v, torch, dtype) for key, v in value.items()}
    return value
