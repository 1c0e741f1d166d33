"""Linear algebra on matrices and stacks of them: ``evergrad.linalg``, as ``torch.linalg`` has it.

This module only gathers what the linear-algebra modules of ``evergrad.ops`` have entered.
"""

from evergrad.errors import LinAlgError as LinAlgError
from evergrad.ops.linalg_base import LINALG as _LINALG

globals().update(_LINALG)

__all__ = sorted(["LinAlgError", *_LINALG])
