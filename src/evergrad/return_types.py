"""Named results of functions that return several tensors, as ``torch.return_types`` has them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any


def _show(self: Any) -> str:
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"evergrad.return_types.{type(self).__name__}(\n{lines})"


def _result(name: str, fields: str) -> Any:
    kind = namedtuple(name, fields, module=__name__)  # type: ignore[misc]
    kind.__repr__ = _show  # type: ignore[method-assign]
    return kind


max = _result("max", "values indices")
min = _result("min", "values indices")
aminmax = _result("aminmax", "min max")
median = _result("median", "values indices")
nanmedian = _result("nanmedian", "values indices")
mode = _result("mode", "values indices")
kthvalue = _result("kthvalue", "values indices")
sort = _result("sort", "values indices")
topk = _result("topk", "values indices")
cummax = _result("cummax", "values indices")
cummin = _result("cummin", "values indices")
histogram = _result("histogram", "hist bin_edges")
