"""The base of tensors, which declares what the op modules attach to them.

The declarations are for type checkers and stand in the stub beside this file, which
``tools/generate_stubs.py`` writes.
"""


class TensorMethods:
    """Operators, methods and attributes of tensors, as the stub declares them."""

    __slots__ = ()
