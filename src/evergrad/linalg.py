"""Linear algebra on matrices and stacks of them: ``evergrad.linalg``, as ``torch.linalg`` has it.

This module only gathers what the linear-algebra modules of ``evergrad.ops`` have entered.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from evergrad.errors import LinAlgError as LinAlgError
from evergrad.ops.rows.linalg.base import LINALG as _LINALG

if _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any: ...


globals().update(_LINALG)

__all__ = sorted(["LinAlgError", *_LINALG])
