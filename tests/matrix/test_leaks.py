"""Memory: with the cyclic collector off, calls and their derivatives leave nothing behind."""

from __future__ import annotations

from evergrad.testing.samples import Sample

from .checks import cases_of, run


@cases_of("leaks")
def test_leaks(sample: Sample) -> None:
    run("leaks", sample)
