"""Transforms: forward against reverse, batches against loops, programs against calls."""

from __future__ import annotations

from evergrad.testing.samples import Sample

from .checks import cases_of, run


@cases_of("transpose")
def test_transpose(sample: Sample) -> None:
    run("transpose", sample)


@cases_of("mixed_orders")
def test_mixed_orders(sample: Sample) -> None:
    run("mixed_orders", sample)


@cases_of("vmap")
def test_vmap(sample: Sample) -> None:
    run("vmap", sample)


@cases_of("trace")
def test_trace(sample: Sample) -> None:
    run("trace", sample)


@cases_of("traced_gradient")
def test_traced_gradient(sample: Sample) -> None:
    run("traced_gradient", sample)
