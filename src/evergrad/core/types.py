"""The types that signatures share: what a caller may pass, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from evergrad.core.device import Device
    from evergrad.core.dtypes import dtype
    from evergrad.core.memory_format import layout, memory_format
    from evergrad.core.rng.default_generator import Generator
    from evergrad.core.tensor import Tensor

# A NumPy array of any shape and element type.
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# A function of any signature: of the user's, of NumPy's, or one that is picked at run time.
AnyFunction: TypeAlias = Callable[..., Any]
# A value, or containers of values in each other; and what is at its ends, in order.
Tree: TypeAlias = Any
Leaves: TypeAlias = list[Any]
# What stands in the brackets of ``tensor[...]``: numbers, slices, lists, arrays, tensors.
Index: TypeAlias = Any
# What a cache is looked up by, and the state that an object is made from again.
Key: TypeAlias = tuple[Any, ...]
# A document that was decoded from JSON or TOML, or is to be encoded.
JsonObject: TypeAlias = dict[str, Any]
# The arguments of a call that is passed on: of the user's function, or of a row of the table.
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
# The attributes of an equation: what is known when it is traced, by name.
Attrs: TypeAlias = dict[str, Any]
# What ``state_dict()`` gives and ``load_state_dict()`` takes, and the parameters of an optimizer
# that share their settings.
StateDict: TypeAlias = dict[str, Any]
ParamGroup: TypeAlias = dict[str, Any]
# What an optimizer is made with: tensors, groups of them, or pairs of a name and a tensor.
Params: TypeAlias = "Iterable[Tensor] | Iterable[ParamGroup] | Iterable[tuple[str, Tensor]]"
# One number for all dimensions, or one for each.
Ints: TypeAlias = "int | Sequence[int]"
# The dimensions that an op reduces, one or several; ``None`` for all of them.
DimsLike: TypeAlias = "int | Sequence[int] | None"
Floats: TypeAlias = "float | Sequence[float]"
# An element type in any spelling: ours, NumPy's, or a Python class; ``None`` for the default.
DtypeLike: TypeAlias = "dtype | np.dtype[np.generic] | type | None"
DeviceLike: TypeAlias = "Device | str | int | None"
LayoutLike: TypeAlias = "layout | None"
MemoryFormatLike: TypeAlias = "memory_format | None"
# Where random numbers come from; ``None`` for the default generator.
GeneratorLike: TypeAlias = "Generator | None"
