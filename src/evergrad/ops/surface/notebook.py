"""Tensors in the cells of notebooks: a table in colours, or a heat map where it is large."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad import html
from evergrad.core.functionalize import note_outside_read
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.extension import provides

_TABLE = 12  # rows and columns of a table at most
_CELLS = 48  # of a heat map, each way
_SIDE = 8  # pixels of a cell


@provides("tensor_fragment")
def cell(tensor: Tensor) -> str | None:
    """The cell of a tensor; ``None`` (then a notebook shows the text) if it has no array, or none
    of real numbers."""
    values = tensor._value
    if not isinstance(values, np.ndarray) or tensor.is_meta or tensor.is_complex():
        return None
    note_outside_read(tensor)
    parts = [html.paragraph(_summary(tensor, values))]
    if values.size and values.ndim:
        plane = values.reshape(1, -1) if values.ndim == 1 else values[(0,) * (values.ndim - 2)]
        if values.ndim > 2:
            parts.append(html.paragraph(f"[{'0, ' * (values.ndim - 2)}:, :]"))
        parts.append(_table(plane) if max(plane.shape) <= _TABLE else _heat_map(plane))
    return html.fragment(parts)


def _summary(tensor: Tensor, values: Array) -> str:
    shape = " × ".join(map(str, tensor.shape)) or "a number"
    text = f"tensor {shape}, {tensor.dtype.name}"
    text += ", requires_grad" if tensor.requires_grad else ""
    if values.ndim == 0:
        return f"{text}: {values.item()}"
    if not values.size or values.dtype == np.bool_:
        return text
    wide = values.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size:
        text += f"; from {finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}"
    bad = wide.size - finite.size
    return f"{text}; {bad:,} not finite" if bad else text


def _colours(plane: Array) -> list[list[str]]:
    """A colour for each value: from blue (least) over none to red (greatest); grey if not finite.
    Zero has no colour where there are values of both signs."""
    wide = plane.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    if low < 0 < high:
        middle, reach = 0.0, max(-low, high)
    else:
        middle, reach = (low + high) / 2, (high - low) / 2
    return [[_colour((v - middle) / reach if reach else 0.0) for v in row] for row in wide]


def _colour(share: float) -> str:
    if not np.isfinite(share):
        return "#88888880"
    alpha = round(min(abs(share), 1.0) * 200)
    return f"#{'e45756' if share > 0 else '4c78a8'}{alpha:02x}"


def _table(plane: Array) -> str:
    rows = [
        "<tr>" + "".join(
            f'<td class="n" style="background:{colour}">{html.escape(_number(value))}</td>'
            for value, colour in zip(values, colours, strict=True)
        ) + "</tr>"
        for values, colours in zip(plane, _colours(plane), strict=True)
    ]  # fmt: skip
    return f"<table>{''.join(rows)}</table>"


def _number(value: Any) -> str:
    return str(value) if value.dtype.kind in "iub" else f"{float(value):.4g}"


def _heat_map(plane: Array) -> str:
    """Means over blocks, so that no more cells are drawn than can be seen."""
    rows, columns = (np.array_split(np.arange(n), min(n, _CELLS)) for n in plane.shape)
    wide = plane.astype(np.float64)
    means = np.array([[wide[np.ix_(r, c)].mean() for c in columns] for r in rows])
    cells = [
        html.rectangle("part", x * _SIDE, y * _SIDE, _SIDE, _SIDE, f"{means[y, x]:.4g}", colour)
        for y, row in enumerate(_colours(means))
        for x, colour in enumerate(row)
    ]
    width, height = len(columns) * _SIDE, len(rows) * _SIDE
    note = "" if means.shape == plane.shape else html.paragraph("means over blocks")
    return (
        f'<svg class="drawing" viewBox="0 0 {width} {height}" style="width:{width}px" role="img" '
        f'aria-label="values as colours">{"".join(cells)}</svg>{note}'
    )
