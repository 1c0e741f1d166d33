"""The base of tensors, which declares what the op modules attach to them.

The declarations are for type checkers and stand in the stub beside this file, which
``tools/generate_stubs.py`` writes. There is no ``__getattr__`` here: with one, CPython does not
specialize any access of a tensor's fields, which take three times as long then. The interpreter
itself suggests the nearest name where an unknown one is reported.
"""


class TensorMethods:
    """Operators, methods and attributes of tensors, as the stub declares them."""

    __slots__ = ()
