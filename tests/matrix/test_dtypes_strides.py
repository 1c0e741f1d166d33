"""Element types of fewer bits, memory layouts, and what calls may do to memory."""

from __future__ import annotations

from types import ModuleType

from evergrad.core import dtypes
from evergrad.testing.samples import Sample
from evergrad.testing.subject import Subject, as_tensors

from .checks import (
    NOT_TAKEN,
    cases,
    cases_of,
    ensure_same_types,
    run,
    to_torch,
    torch_call,
)


@cases_of("low_precision")
def test_low_precision(sample: Sample) -> None:
    run("low_precision", sample)


def _torch_takes_low_precision(sample: Sample) -> bool:
    """Without elements PyTorch does not look at the element type."""
    kinds = [a.dtype.kind for a in Subject(sample).arrays if a.size]
    return sample.torch and "f" in kinds and "c" not in kinds


@cases(_torch_takes_low_precision)
def test_result_types_of_torch(sample: Sample, torch: ModuleType) -> None:
    """Where PyTorch takes 16-bit floats, results have its types."""
    subject = Subject(sample)
    for low in (dtypes.float16, dtypes.bfloat16):
        arrays = [a.astype(low.np) if a.dtype.kind == "f" else a for a in subject.arrays]
        try:
            expected = torch_call(torch, subject, [to_torch(torch, a) for a in arrays])
        except NOT_TAKEN:
            continue
        found = subject.seeded_call(*as_tensors(arrays))
        ensure_same_types(f"{sample} in {low.name}", found, expected)


@cases_of("strides")
def test_strides(sample: Sample) -> None:
    run("strides", sample)


@cases_of("purity")
def test_purity(sample: Sample) -> None:
    run("purity", sample)
