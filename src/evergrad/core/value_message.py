"""Messages that show tensors whose elements are known only when a traced program runs.

While :func:`deferred_message` makes a message, a tensor without readable elements writes a mark in
the place of its text. What results is a tuple of strings and :data:`Style` entries, plain data that
an equation can have as an attribute, and the tensors for these entries, which are its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from evergrad.core import dtypes
from evergrad.core.printing import format_tensor
from evergrad.core.tensor import Tensor
from evergrad.core.thread_variable import thread_variable
from evergrad.core.tracing import is_known

# How a tensor is shown: (prefix, requires_grad, grad_fn), or (format specification,) for a number.
# An empty style stands before that of a tensor of which only the elements under a mask are shown.
Style = tuple[Any, ...]
Template = tuple[str | Style, ...]

_MARK = re.compile("\ue000(\\d+)\ue001")


class _Marks(NamedTuple):
    tensors: list[Tensor]
    styles: list[Style]

    def mark(self, tensor: Tensor, style: Style) -> str:
        self.tensors.append(tensor)
        self.styles.append(style)
        return f"\ue000{len(self.styles) - 1}\ue001"


_marks: ContextVar[_Marks | None] = thread_variable("marks of a deferred message", None)


def mark_of(tensor: Tensor, style: Style) -> str | None:
    """The mark of a tensor in the message that is being made, if it has no readable elements."""
    marks = _marks.get()
    return None if marks is None or is_known(tensor) else marks.mark(tensor, style)


def shown_where(mask: Tensor, values: Tensor) -> str:
    """The text of ``values[mask]``; in a deferred message that of the elements when it is made."""
    marks = _marks.get()
    if marks is None or is_known(values):
        return str(values[mask])
    return marks.mark(mask, ()) + str(values)


def deferred_message(message: Callable[[], str]) -> tuple[Template, list[Tensor]]:
    """A message as a template, and the tensors that it shows."""
    marks = _Marks([], [])
    token = _marks.set(marks)
    try:
        text = message()
    finally:
        _marks.reset(token)
    parts: list[str | Style] = list(_MARK.split(text))
    shown = [int(number) for number in parts[1::2]]  # type: ignore[arg-type]
    parts[1::2] = [marks.styles[number] for number in shown]
    return tuple(parts), [marks.tensors[number] for number in shown]


def rendered(template: Template, arrays: Sequence[object]) -> str:
    """A message from its template and the elements of the tensors in it."""
    given = iter(arrays)
    mask: Any = ...
    text = ""
    for part in template:
        if isinstance(part, str):
            text += part
        elif not part:
            mask = next(given)
        else:
            text += _shown(part, np.asarray(next(given))[mask])
            mask = ...
    return text


def _shown(style: Style, value: object) -> str:
    array = np.asarray(value)
    if len(style) == 1:
        return format(array.item(), style[0])
    prefix, requires_grad, grad_fn = style
    return format_tensor(
        array, dtype_name=dtypes.from_numpy_dtype(array.dtype).name,
        default_dtype=dtypes.get_default_dtype().name, requires_grad=requires_grad,
        grad_fn=grad_fn, prefix=prefix,
    )  # fmt: skip
