"""The docstrings of public functions: one entry for each, which every form of it shows.

An entry says what the function computes, its arguments, its result, and where it differs from
PyTorch; its examples run as doctests. Functions of a namespace have it in their key:
``linalg.norm``, ``fft.rfft``. The surface attaches the entries
(:mod:`evergrad.ops.surface.public`); what has none keeps the docstring of its definition.
"""

from evergrad.ops.reference import (
    comparison,
    copies,
    creation,
    elementwise,
    functional,
    indexing,
    layers,
    linalg,
    losses,
    methods,
    order,
    pooling,
    products,
    random,
    reductions,
    rounding,
    shape,
    special,
    spectral,
)

DOCS: dict[str, str] = {
    **elementwise.DOCS,
    **rounding.DOCS,
    **comparison.DOCS,
    **reductions.DOCS,
    **order.DOCS,
    **shape.DOCS,
    **copies.DOCS,
    **indexing.DOCS,
    **creation.DOCS,
    **random.DOCS,
    **products.DOCS,
    **linalg.DOCS,
    **special.DOCS,
    **spectral.DOCS,
    **methods.DOCS,
    **functional.DOCS,
    **layers.DOCS,
    **pooling.DOCS,
    **losses.DOCS,
}
