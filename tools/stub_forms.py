"""What a signature alone does not say: parameters that take several types, results that depend on
arguments.

``PARAMETERS`` refines a parameter that the source annotates with ``Any``, by its name. ``FORMS``
lists the forms of a function whose result depends on its arguments: pairs of the parameters after
the first and the result.
"""

from __future__ import annotations

INTS = "int | Sequence[int]"
OPERAND = "Tensor | complex | np.generic"
# Aliases of evergrad.core.types that take ``None``.
OPTIONAL = (
    "DeviceLike", "DimsLike", "DtypeLike", "GeneratorLike", "LayoutLike", "MemoryFormatLike",
)  # fmt: skip

PARAMETERS = {
    "alpha": OPERAND,
    "beta": OPERAND,
    "correction": "float | None",
    "data": "Any",
    "device": "Device | str | int | None",
    "dilation": INTS,
    "dim": f"{INTS} | None",
    "dims": f"{INTS} | None",
    "dtype": "dtype | None",
    "dx": OPERAND,
    "end": OPERAND,
    "exponent": OPERAND,
    "fill_value": OPERAND,
    "generator": "Generator | None",
    "hook": "Callable[[Tensor], Tensor | None]",
    "input": OPERAND,
    "kernel_size": INTS,
    "layout": "Layout | None",
    "max": f"{OPERAND} | None",
    "memory_format": "MemoryFormat | None",
    "min": f"{OPERAND} | None",
    "other": OPERAND,
    "output_padding": INTS,
    "output_size": f"{INTS} | tuple[int | None, ...] | None",
    "padding": f"str | {INTS}",
    "normalized_shape": INTS,
    "scale_factor": "float | Sequence[float] | None",
    "shifts": INTS,
    "size": f"{INTS} | None",
    "sizes": INTS,
    "start": OPERAND,
    "step": OPERAND,
    "stride": f"{INTS} | None",
    "tensors": "Sequence[Tensor] | Tensor",
    "value": OPERAND,
    "weight": OPERAND,
}

# Keywords that a function takes as ``**options`` or ``**named``.
KEYWORDS = {
    "options": (
        "out: Tensor | None = None, dtype: dtype | None = None, device: Device | str | int | None "
        "= None, layout: Layout | None = None, requires_grad: bool = False, pin_memory: bool = "
        "False"
    ),
    "named": f"size: {INTS} | None = None",
}

_LOW_HIGH = "generator: Generator | None = None, dtype: dtype | None = None, "
_FACTORY = (
    "device: Device | str | int | None = None, layout: Layout | None = None, "
    "requires_grad: bool = False, pin_memory: bool = False"
)


def _values(name: str, dim: str = "dim: int", others: str = "keepdim: bool = False") -> list[
    tuple[str, str]
]:  # fmt: skip
    return [("", "Tensor"), (f"{dim}, {others}", f"return_types.{name}")]


def _pooled(parameters: str) -> list[tuple[str, str]]:
    return [
        (f"{parameters}, return_indices: Literal[False] = False", "Tensor"),
        (f"{parameters}, *, return_indices: Literal[True]", "tuple[Tensor, Tensor]"),
    ]


_WINDOWS = (
    f"kernel_size: {INTS}, stride: {INTS} | None = None, padding: {INTS} = 0, "
    f"dilation: {INTS} = 1, ceil_mode: bool = False"
)
_FRACTIONAL = (
    f"kernel_size: {INTS}, output_size: {INTS} | None = None, "
    "output_ratio: float | Sequence[float] | None = None"
)
_INDEX = (
    "SupportsIndex | slice | EllipsisType | Tensor | np.ndarray[Any, Any] | np.generic | "
    "Sequence[int] | list[Any] | tuple[Any, ...] | None"
)
_ASSIGNED = f"{OPERAND} | np.ndarray[Any, Any] | Sequence[Any]"
_ADAPTIVE = f"output_size: {INTS} | Sequence[int | None] | None"

FORMS: dict[str, list[tuple[str, str]]] = {
    "__getitem__": [(f"index: {_INDEX}", "Tensor")],
    "__setitem__": [(f"index: {_INDEX}, value: {_ASSIGNED}", "None")],
    **{f"max_pool{rank}d": _pooled(_WINDOWS) for rank in (1, 2, 3)},
    **{f"adaptive_max_pool{rank}d": _pooled(_ADAPTIVE) for rank in (1, 2, 3)},
    **{f"fractional_max_pool{rank}d": _pooled(_FRACTIONAL) for rank in (2, 3)},
    "max": [*_values("max"), (f"other: {OPERAND}", "Tensor")],
    "min": [*_values("min"), (f"other: {OPERAND}", "Tensor")],
    "median": _values("median"),
    "nanmedian": _values("nanmedian"),
    "nonzero": [
        ("*, as_tuple: Literal[False] = False", "Tensor"),
        ("*, as_tuple: Literal[True]", "tuple[Tensor, ...]"),
    ],
    "size": [("dim: None = None", "Size"), ("dim: int", "int")],
    "stride": [("dim: None = None", "tuple[int, ...]"), ("dim: int", "int")],
    "type": [
        ("dtype: None = None, non_blocking: bool = False", "str"),
        ("dtype: dtype | str | type[Any], non_blocking: bool = False", "Tensor"),
    ],
    "to": [
        ("dtype: dtype, non_blocking: bool = False, copy: bool = False, *, "
         "memory_format: MemoryFormat | None = None", "Tensor"),
        ("device: Device | str | int | None = None, dtype: dtype | None = None, "
         "non_blocking: bool = False, copy: bool = False, *, "
         "memory_format: MemoryFormat | None = None", "Tensor"),
        ("other: Tensor, non_blocking: bool = False, copy: bool = False, *, "
         "memory_format: MemoryFormat | None = None", "Tensor"),
    ],
    "view": [
        (f"*args: {INTS}, size: {INTS} | None = None", "Tensor"),
        ("dtype: dtype", "Tensor"),
    ],
    "unique": [
        ("sorted: bool = True, return_inverse: Literal[False] = False, "
         "return_counts: Literal[False] = False, dim: int | None = None", "Tensor"),
        ("sorted: bool = True, *, return_inverse: Literal[True], return_counts: Literal[True], "
         "dim: int | None = None", "tuple[Tensor, Tensor, Tensor]"),
        ("sorted: bool = True, *, return_inverse: Literal[True], return_counts: Literal[False] "
         "= False, dim: int | None = None", "tuple[Tensor, Tensor]"),
        ("sorted: bool = True, *, return_inverse: Literal[False] = False, return_counts: "
         "Literal[True], dim: int | None = None", "tuple[Tensor, Tensor]"),
        ("sorted: bool = True, *, return_inverse: bool = False, return_counts: bool = False, "
         "dim: int | None = None", "Any"),
        ("sorted: bool, return_inverse: bool, return_counts: bool = False, "
         "dim: int | None = None", "Any"),
    ],
    "unique_consecutive": [
        ("return_inverse: Literal[False] = False, return_counts: Literal[False] = False, "
         "dim: int | None = None", "Tensor"),
        ("return_inverse: Literal[True], return_counts: Literal[True], dim: int | None = None",
         "tuple[Tensor, Tensor, Tensor]"),
        ("return_inverse: Literal[True], return_counts: Literal[False] = False, dim: int | None "
         "= None", "tuple[Tensor, Tensor]"),
        ("return_inverse: Literal[False] = False, *, return_counts: Literal[True], dim: int | None "
         "= None", "tuple[Tensor, Tensor]"),
        ("return_inverse: bool = False, return_counts: bool = False, dim: int | None = None",
         "Any"),
    ],
    "expand": [(f"*args: {INTS}, size: {INTS} | None = None, implicit: bool = False", "Tensor")],
    "broadcast_to": [(f"*args: {INTS}, size: {INTS} | None = None", "Tensor")],
    "reshape": [(f"*args: {INTS}, shape: {INTS} | None = None", "Tensor")],
    "permute": [(f"*args: {INTS}, dims: {INTS} | None = None", "Tensor")],
    "flip": [(f"*args: {INTS}, dims: {INTS} | None = None", "Tensor")],
    "repeat": [(f"*args: {INTS}, repeats: {INTS} | None = None", "Tensor")],
    "tile": [(f"*args: {INTS}, dims: {INTS} | None = None", "Tensor")],
    "sum_to_size": [(f"*args: {INTS}, size: {INTS} | None = None", "Tensor")],
    "resize_": [(f"*sizes: {INTS}, memory_format: MemoryFormat | None = None", "Tensor")],
    "lu": [
        ("pivot: bool = True, get_infos: Literal[False] = False", "tuple[Tensor, Tensor]"),
        ("pivot: bool = True, *, get_infos: Literal[True]", "tuple[Tensor, Tensor, Tensor]"),
    ],
}  # fmt: skip

# Functions without a tensor at first: all of their parameters are in the form.
WHOLE_FORMS: dict[str, list[tuple[str, str]]] = {
    "where": [
        ("condition: Tensor", "tuple[Tensor, ...]"),
        (f"condition: Tensor, input: {OPERAND}, other: {OPERAND}, *, out: Tensor | None = None",
         "Tensor"),
    ],
    "randint": [
        (f"high: int, size: {INTS}, *, out: Tensor | None = None, {_LOW_HIGH}{_FACTORY}", "Tensor"),
        (f"low: int, high: int, size: {INTS}, *, out: Tensor | None = None, {_LOW_HIGH}{_FACTORY}",
         "Tensor"),
    ],
    "randint_like": [
        (f"input: Tensor, high: int, *, {_LOW_HIGH}{_FACTORY}, "
         "memory_format: MemoryFormat | None = None", "Tensor"),
        (f"input: Tensor, low: int, high: int, *, {_LOW_HIGH}{_FACTORY}, "
         "memory_format: MemoryFormat | None = None", "Tensor"),
    ],
    "is_floating_point": [("input: Tensor", "bool")],
    "is_complex": [("input: Tensor", "bool")],
    "is_signed": [("input: Tensor", "bool")],
    "numel": [("input: Tensor", "int")],
    "einsum": [("equation: str, *operands: Tensor | Sequence[Tensor]", "Tensor")],
    **{
        f"atleast_{n}d": [
            ("tensor: Tensor, /", "Tensor"),
            ("tensors: Sequence[Tensor], /", "tuple[Tensor, ...]"),
            ("first: Tensor, second: Tensor, /, *tensors: Tensor", "tuple[Tensor, ...]"),
        ]
        for n in (1, 2, 3)
    },
}  # fmt: skip
