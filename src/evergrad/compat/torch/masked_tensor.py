"""Tensors with a mask of the elements that count: ``torch.masked.MaskedTensor``, dense.

Elementwise functions keep the mask, functions of shape change data and mask alike, and reductions
are those of :mod:`evergrad.masked`. What has no meaning for masked elements raises ``TypeError``.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from evergrad import masked
from evergrad.core import dtypes
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS

from .overrides import DisableTorchFunctionSubclass

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNARY = _names(
    """
    abs absolute acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh
    bitwise_not ceil clamp clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2
    expm1 fix floor frac i0 __invert__ isnan lgamma log log10 log1p log2 logit nan_to_num neg
    negative positive pow rad2deg reciprocal relu round rsqrt sgn sigmoid sign signbit sin sinc sinh
    sqrt square tan tanh to trunc double float half bfloat16 int long bool
    """
)
_BINARY = _names(
    """
    add arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor div
    divide eq floor_divide fmax fmin fmod ge greater greater_equal gt le less less_equal logaddexp
    logaddexp2 lt maximum minimum mul multiply ne nextafter not_equal remainder sub subtract
    true_divide __and__ __eq__ __floordiv__ __or__ __rdiv__ __rsub__ __xor__
    """
)
_SHAPE = _names(
    """
    __getitem__ broadcast_to cat concat expand expand_as flatten im2col movedim narrow permute
    ravel reshape select split squeeze stack swapaxes t transpose unbind unfold unsqueeze view
    """
)
_REDUCTIONS = _names("sum mean amin amax argmin argmax prod var std")
_PLACES = frozenset(("argmin", "argmax"))
_TYPES = frozenset(
    getattr(dtypes, name) for name in _names("bool_ int8 int16 int32 int64 float16 float32 float64")
)


class MaskedTensor(Tensor):
    """A tensor and a mask of the same shape; elements where the mask is false do not count."""

    __module__ = "torch.masked.maskedtensor.core"  # not one of the engine's own classes
    _masked_mask: Tensor

    def __new__(cls, data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
        _check(data, mask)
        warnings.warn(
            "The PyTorch API of MaskedTensors is in prototype stage and will change in the near "
            "future.",
            UserWarning,
            stacklevel=2,
        )
        if data.requires_grad:
            warnings.warn(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. "
                "To avoid this, you can use data.detach().clone()",
                UserWarning,
                stacklevel=2,
            )
        kept = data.detach().clone()
        made: MaskedTensor = Tensor._make_subclass(cls, kept, requires_grad)  # type: ignore[attr-defined]
        made._masked_mask = mask.clone()
        return made

    def __init__(self, data: Tensor, mask: Tensor, requires_grad: bool = False) -> None:
        """Everything is done in ``__new__``."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: object, args: Any = (), kwargs: Any = None
    ) -> Any:
        with DisableTorchFunctionSubclass():
            return _apply(func, args, kwargs or {})

    def get_data(self) -> Tensor:
        """The elements, those that are masked included."""
        with DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    def get_mask(self) -> Tensor:
        """Where elements count."""
        return self._masked_mask

    def to_tensor(self, value: complex | Tensor) -> Tensor:
        """The elements, with a value in place of those that are masked."""
        return self.get_data().masked_fill(~self._masked_mask, value)

    def is_sparse_coo(self) -> bool:
        return False

    def is_sparse_csr(self) -> bool:  # type: ignore[override]  # a method, as in PyTorch
        return False

    def __repr__(self, *, tensor_contents: object = None) -> str:
        data, mask = self.get_data().detach(), self._masked_mask
        if not data.ndim:
            shown = _number(data.item()) if mask.item() else "--"
            return f"MaskedTensor({shown}, {mask.item()})"
        return "MaskedTensor(\n" + _indented(_rows(data, mask)) + "\n)"


def _check(data: object, mask: object) -> None:
    if isinstance(data, MaskedTensor) or not isinstance(data, Tensor):
        raise TypeError("data must be a Tensor")
    if isinstance(mask, MaskedTensor) or not isinstance(mask, Tensor):
        raise TypeError("mask must be a Tensor")
    if mask.dtype is not dtypes.bool_:
        raise TypeError("mask must have dtype bool.")
    if data.dtype not in _TYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.ndim != mask.ndim:
        raise ValueError("data.dim() must equal mask.dim()")
    if tuple(data.shape) != tuple(mask.shape):
        raise ValueError("data.size() must equal mask.size()")


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A leaf with a copy of the data and the mask."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """The data under a mask; gradients flow to the data."""
    _check(data, mask)
    with DisableTorchFunctionSubclass():
        made: MaskedTensor = _wrapped(data.clone(), mask.clone())
    return made


def is_masked_tensor(obj: object, /) -> bool:
    """Whether it is a :class:`MaskedTensor`."""
    return isinstance(obj, MaskedTensor)


# -- functions ------------------------------------------------------------------------------------


def _wrapped(data: Any, mask: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return type(data)(_wrapped(d, m) for d, m in zip(data, mask, strict=True))
    made = data.as_subclass(MaskedTensor)
    made._masked_mask = mask
    return made


def _data(value: Any) -> Any:
    """The data of masked tensors, in nested lists too."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_data, value))
    return value.as_subclass(Tensor) if isinstance(value, MaskedTensor) else value


def _masks(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_masks, value))
    return value._masked_mask if isinstance(value, MaskedTensor) else value


def _apply(func: AnyFunction, args: Any, kwargs: Any) -> Any:
    name = func.__name__
    if name == "__get__":
        return _read_property(func, args[0])
    if name in _REDUCTIONS:
        return _reduced(name, *args, **kwargs)
    if name in _SHAPE:
        return _wrapped(func(*_data(args), **kwargs), func(*_masks(args), **kwargs))
    if name in _UNARY:
        return _wrapped(func(_data(args[0]), *args[1:], **kwargs), args[0]._masked_mask)
    if name in _BINARY:
        return _binary(func, *args, **kwargs)
    if name.removesuffix("_") in _UNARY | _BINARY:
        _require_equal_masks(*args[:2])
        func(*_data(args), **kwargs)
        return args[0]
    if name in _SPECIAL:
        return _SPECIAL[name](func, *args, **kwargs)
    return NotImplemented


def _read_property(func: Any, self: MaskedTensor) -> Any:
    data, mask = self.as_subclass(Tensor), self._masked_mask
    if func.__self__ is vars(Tensor)["grad"]:
        found = func(self)
        return None if found is None else _wrapped(found.as_subclass(Tensor), mask)
    if func.__self__ is vars(Tensor)["data"]:
        return _wrapped(data.detach(), mask)
    return _wrapped(func(data), func(mask))


def _require_equal_masks(left: Any, right: Any = None) -> None:
    both = isinstance(left, MaskedTensor) and isinstance(right, MaskedTensor)
    if both and not left._masked_mask.equal(right._masked_mask):
        raise ValueError(
            "Input masks must match. If you need support for this, please open an issue on Github."
        )


def _binary(func: AnyFunction, left: Any, right: Any, **kwargs: object) -> Any:
    _require_equal_masks(left, right)
    made = func(_data(left), _data(right), **kwargs)
    mask = left._masked_mask if isinstance(left, MaskedTensor) else right._masked_mask
    return _wrapped(made, mask.expand(made.shape))


def _any(mask: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if dim is None:
        return mask.any()
    for d in sorted((dim,) if isinstance(dim, int) else dim, reverse=True):
        mask = mask.any(d, keepdim)
    return mask


def _reduced(
    name: str, input: MaskedTensor, dim: Any = None, keepdim: bool = False, **kwargs: object
) -> Any:
    mask = input._masked_mask
    further = {} if dim is None and name in _PLACES else {"keepdim": keepdim}
    found = getattr(masked, name)(_data(input), dim=dim, mask=mask, **further, **kwargs)
    return _wrapped(found, _any(mask, dim, keepdim))


def _all(func: object, input: MaskedTensor, dim: Any = None, keepdim: bool = False) -> Any:
    mask, data = input._masked_mask, _data(input)
    filled = data.masked_fill(~mask, True)
    found = filled.all() if dim is None else filled.all(dim, keepdim)
    return _wrapped(found, _any(mask, dim, keepdim))


def _softmax(func: Any, input: MaskedTensor, dim: int, dtype: Any = None, **_: object) -> Any:
    function = masked.log_softmax if func.__name__ == "log_softmax" else masked.softmax
    found = function(_data(input), dim, dtype=dtype, mask=input._masked_mask)
    return _wrapped(found, input._masked_mask)


def _same(func: Any, input: MaskedTensor, *args: object, **kwargs: object) -> Any:
    """A copy, or other elements, under the same mask."""
    return _wrapped(func(_data(input), *args, **kwargs), input._masked_mask)


def _where(func: Any, condition: Tensor, left: Any, right: Any) -> Any:
    masks = [
        m._masked_mask if isinstance(m, MaskedTensor) else FUNCTIONS["ones_like"](condition).bool()
        for m in (left, right)
    ]
    return _wrapped(func(condition, _data(left), _data(right)), func(condition, *masks))


_SPECIAL: dict[str, AnyFunction] = {
    "all": _all, "clone": _same, "contiguous": _same, "detach": _same, "log_softmax": _softmax,
    "ones_like": _same, "softmax": _softmax, "where": _where, "zeros_like": _same,
}  # fmt: skip


# -- printing -------------------------------------------------------------------------------------


def _number(value: object) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))


def _rows(data: Tensor, mask: Tensor) -> str:
    if data.ndim == 1:
        shown = [_number(value) for value in data.tolist()]
        kept = mask.tolist()
        widths = (len(text) if keep else 8 for text, keep in zip(shown, kept, strict=True))
        width = max(widths, default=0)
        parts = (t if keep else "--".rjust(width) for t, keep in zip(shown, kept, strict=True))
        return "[" + ", ".join(parts) + "]"
    parts = (_indented(_rows(d, m)) for d, m in zip(data, mask, strict=True))
    return "[\n" + ",\n".join(parts) + "\n]"
