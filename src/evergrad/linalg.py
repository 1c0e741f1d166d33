"""Linear algebra on matrices and stacks of them: ``evergrad.linalg``, as ``torch.linalg`` has it.

This module only gathers what the linear-algebra modules of ``evergrad.ops`` have entered.
"""

from evergrad.errors import LinAlgError as LinAlgError
from evergrad.lazy import known_names as _known_names
from evergrad.ops.rows.linalg.base import LINALG as _LINALG

__getattr__ = _known_names(__name__)

globals().update(_LINALG)

__all__ = sorted(["LinAlgError", *_LINALG])
