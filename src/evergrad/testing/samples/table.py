"""The samples of every row: all modules that enter some, by name."""

from __future__ import annotations

from evergrad.testing.samples import (  # noqa: F401 - imported for what they enter
    SAMPLES,
    Sample,
    arithmetic,
    bessel,
    block_products,
    collective,
    contract,
    conv,
    convolve,
    counting,
    creation,
    curves,
    elementwise,
    fft,
    float8,
    getitem,
    indexing,
    items,
    jagged_attention,
    linalg,
    logic,
    losses,
    movement,
    number_parts,
    packed_linear,
    paged_attention,
    pool,
    random,
    random_families,
    rearrange,
    recurrent,
    reduce,
    scan,
    softmax,
    sort,
    special,
)


def all_samples() -> dict[str, list[Sample]]:
    """The samples of every row."""
    return SAMPLES
