"""``assert_close``, ``make_tensor``, and the checks that every row of the op table has to pass.

``evergrad.testing.samples`` holds the inputs, ``evergrad.testing.checks`` what is demanded of each
of them. Importing this package loads neither.
"""

from evergrad.testing.closeness import assert_allclose, assert_close
from evergrad.testing.creation import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
