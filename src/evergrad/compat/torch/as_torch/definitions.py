"""What :mod:`.private_names` refers to where evergrad itself has no counterpart."""

from __future__ import annotations

import copy
import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import evergrad
from evergrad.amp import autocast_mode
from evergrad.core.printing import get_printoptions
from evergrad.core.tensor import Tensor
from evergrad.core.tree import TreeSpec
from evergrad.core.tree import register_pytree_node as _register
from evergrad.func import functional_call
from evergrad.nn import ModuleList
from evergrad.nn import functional as F
from evergrad.utils._pytree import MappingKey
from evergrad.utils.data import DataLoader
from evergrad.utils.data._utils.iterators import SingleProcessIterator

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype
    from evergrad.core.types import AnyFunction, DeviceLike, DtypeLike
    from evergrad.nn.module import Module

Anything = Any
ParamsT = Iterable[Any]
MapLocation = Any
EXTRA_STATE_KEY_SUFFIX = "_extra_state"
FP32_PRECISION = "none"
NO_GENERATORS: tuple[object, ...] = ()
NO_GROUPS: dict[object, object] = {}
TIMEOUT = datetime.timedelta(minutes=30)
UNSET_TIMEOUT = -1.0
SPARSE_BLOCK_SIZE = 128
STRING_TYPES = re.compile(r"[SaUO]")

# -- answers -------------------------------------------------------------------------------------


def nothing(*args: object, **kwargs: object) -> None:
    """Without effect."""


def no(*args: object, **kwargs: object) -> bool:
    return False


def zero(*args: object, **kwargs: object) -> int:
    return 0


def empty_list(*args: object, **kwargs: object) -> list[object]:
    return []


def empty_dict(*args: object, **kwargs: object) -> dict[object, object]:
    return {}


def same(value: object) -> object:
    return value


def decorator(*args: object, **kwargs: object) -> object:
    """A decorator that leaves the class as it is."""
    return same


def memory_info(device: DeviceLike = None) -> tuple[int, int]:
    return 0, 0


class NoContext(ContextDecorator):
    """A context without effect, and a decorator."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Arguments are accepted and not used."""

    def __enter__(self) -> NoContext:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Without effect."""


class EventList(list[Any]):
    """Events of PyTorch's profiler."""


class ScriptError(RuntimeError):
    """An error of a scripted program, which here is never raised."""


# -- tensors -------------------------------------------------------------------------------------


def int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """The product of int8 matrices in int32."""
    return self.to(evergrad.int32) @ mat2.to(evergrad.int32)


def grouped_mm(mat_a: Tensor, mat_b: Tensor, offs: Any = None, **options: object) -> Tensor:
    """Products of groups of rows with a matrix each; ``offs`` says where groups end."""
    if offs is None:
        return mat_a @ mat_b
    ends = offs.tolist()
    starts = [0, *ends[:-1]]
    if mat_a.ndim == 2 and mat_b.ndim == 3:
        parts = [mat_a[s:e] @ mat_b[i] for i, (s, e) in enumerate(zip(starts, ends, strict=True))]
        return evergrad.cat(parts)
    parts = [mat_a[:, s:e] @ mat_b[s:e] for s, e in zip(starts, ends, strict=True)]
    return evergrad.stack(parts)


def is_contiguous(a: Tensor) -> bool:
    return a.is_contiguous()


def is_instance(obj: object, target_type: Any) -> bool:
    """Whether an object is of a type, also of one such as ``list[int]``."""
    origin = getattr(target_type, "__origin__", None)
    if origin is None:
        return isinstance(obj, target_type)
    if not isinstance(obj, origin):
        return False
    kinds = target_type.__args__
    if isinstance(obj, dict):
        return all(is_instance(k, kinds[0]) and is_instance(v, kinds[1]) for k, v in obj.items())
    return all(is_instance(member, kinds[0]) for member in obj)


def standard_normal(shape: Sequence[int], dtype: DtypeLike, device: DeviceLike) -> Tensor:
    """Standard normal numbers."""
    return evergrad.randn(shape, dtype=dtype)


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """The sum over the last ``dim`` dimensions."""
    if dim == 0:
        return value
    required = value.shape[:-dim] + (-1,)
    return value.reshape(required).sum(-1)


def _sparse(name: str, kind: dtype) -> Callable[..., Tensor]:
    def make(indices: Tensor, values: Tensor, size: object = None, **options: object) -> Tensor:
        found = values.to(kind)
        return evergrad.sparse_coo_tensor(indices, found, size)

    make.__name__ = make.__qualname__ = name
    return make


SparseFloatTensor: Callable[..., Tensor] = _sparse("FloatTensor", evergrad.float32)
SparseDoubleTensor: Callable[..., Tensor] = _sparse("DoubleTensor", evergrad.float64)
SparseHalfTensor: Callable[..., Tensor] = _sparse("HalfTensor", evergrad.float16)
SparseLongTensor: Callable[..., Tensor] = _sparse("LongTensor", evergrad.int64)


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange what two tensors are, their classes and attributes included."""
    names = [
        n for kind in type(t1).__mro__ for n in getattr(kind, "__slots__", ()) if n[:2] != "__"
    ]
    first = {name: getattr(t1, name) for name in names}
    for name in names:
        setattr(t1, name, getattr(t2, name))
        setattr(t2, name, first[name])
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__


class _VF:
    """Functions of recurrent layers under PyTorch's native names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(evergrad, name)


VF = _VF()

# -- autocast ------------------------------------------------------------------------------------


def get_autocast_cpu_dtype() -> dtype:
    return autocast_mode.get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> dtype:
    return autocast_mode.get_autocast_dtype("cuda")


def is_autocast_cpu_enabled() -> bool:
    return autocast_mode.is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    autocast_mode.set_autocast_enabled("cpu", enabled)


def set_autocast_cpu_dtype(dtype: Any) -> None:
    autocast_mode.set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: Any) -> None:
    autocast_mode.set_autocast_dtype("cuda", dtype)


# -- modules and optimizers ----------------------------------------------------------------------


def get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    found: Callable[[Tensor], Tensor] = getattr(F, activation)
    return found


def get_clones(module: Module, N: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


def in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Any = None) -> list[Tensor]:
    """Queries, keys and values from one weight."""
    weights = w.chunk(3)
    biases = (None, None, None) if b is None else b.chunk(3)
    return [F.linear(x, m, n) for x, m, n in zip((q, k, v), weights, biases, strict=True)]


def use_grad_for_differentiable(func: Callable[..., object]) -> Callable[..., object]:
    """Run ``step`` with gradients only if the optimizer is differentiable."""

    @wraps(func)
    def step(self: Any, *args: object, **kwargs: object) -> object:
        with evergrad.set_grad_enabled(bool(self.defaults.get("differentiable"))):
            return func(self, *args, **kwargs)

    return step


def default_to_fused_or_foreach(*args: object, **kwargs: object) -> tuple[bool, bool]:
    return False, False


def get_value(x: object) -> object:
    return x.item() if isinstance(x, Tensor) else x


def dispatch_sqrt(x: Tensor) -> object:
    return x.sqrt() if isinstance(x, Tensor) else x**0.5


class DatasetKind:
    """How a loader reads its dataset."""

    Map = 0
    Iterable = 1


class SingleProcessLoaderIterator(SingleProcessIterator):
    """Iterates a loader of this process, also one that only has PyTorch's private attributes."""

    def __init__(self, loader: Any) -> None:
        self._batches: Any = None
        if isinstance(loader, DataLoader):
            super().__init__(loader, None)
        elif loader._dataset_kind == DatasetKind.Iterable and not loader._auto_collation:
            self._batches = map(loader.collate_fn, iter(loader.dataset))
        else:
            raise TypeError(f"cannot iterate a {type(loader).__name__}: not a DataLoader")

    def __next__(self) -> Any:
        return super().__next__() if self._batches is None else next(self._batches)


def make_functional_with_buffers(model: Any) -> Any:
    """A module as a function of its parameters and buffers: ``(function, params, buffers)``."""
    names = [name for name, _ in model.named_parameters()]
    others = [name for name, _ in model.named_buffers()]

    def call(params: Any, buffers: Any, *args: object, **kwargs: object) -> Any:
        values = dict(zip(names, params, strict=True)) | dict(zip(others, buffers, strict=True))
        return functional_call(model, values, args, kwargs)

    return call, tuple(model.parameters()), tuple(model.buffers())


def make_functional(model: object) -> object:
    """A module as a function of its parameters: ``(function, params)``."""
    call, params, buffers = make_functional_with_buffers(model)
    return lambda values, *args, **kwargs: call(values, buffers, *args, **kwargs), params


# -- trees ---------------------------------------------------------------------------------------


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None, None, [])


class _Flattened(NamedTuple):
    flatten_fn: Callable[..., object]
    unflatten_fn: Callable[..., object]


def dict_flatten(d: dict[object, object]) -> tuple[list[object], list[object]]:
    return list(d.values()), list(d)


def dict_unflatten(values: Iterable[object], context: list[object]) -> dict[object, object]:
    return dict(zip(context, values, strict=True))


def dict_flatten_with_keys(d: dict[object, object]) -> tuple[list[object], list[object]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _list_flatten(value: Any) -> tuple[list[object], None]:
    return list(value), None


SUPPORTED_NODES: dict[type, _Flattened] = {
    dict: _Flattened(dict_flatten, dict_unflatten),
    list: _Flattened(_list_flatten, lambda values, context: list(values)),
    tuple: _Flattened(_list_flatten, lambda values, context: tuple(values)),
}


def node_type(tree: object) -> object:
    is_named = isinstance(tree, tuple) and hasattr(tree, "_fields")
    return import_module("collections").namedtuple if is_named else type(tree)


def register_pytree_node(
    cls: type, flatten_fn: AnyFunction, unflatten_fn: AnyFunction, **options: object
) -> None:
    SUPPORTED_NODES[cls] = _Flattened(flatten_fn, unflatten_fn)
    _register(cls, flatten_fn, unflatten_fn)


# -- printing ------------------------------------------------------------------------------------


class _PrintOptions:
    def __getattr__(self, name: str) -> Any:
        options = get_printoptions()
        if name in options:
            return options[name]
        raise AttributeError(name)


PRINT_OPTS = _PrintOptions()


def tensor_str(self: Tensor, indent: int) -> str:
    """The elements of a tensor as text, without ``tensor()`` around them."""
    text = repr(self.detach().as_subclass(Tensor))
    return text[text.index("(") + 1 : text.rindex(")")]


def add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    return ", ".join((tensor_str, *suffixes)) + ")"


def str_intern(inp: Tensor, *, tensor_contents: str | None = None) -> str:
    return repr(inp.as_subclass(Tensor))


# -- placements ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placement:
    """How a tensor is spread over a mesh: described, and not done here."""

    def is_shard(self, dim: int | None = None) -> bool:
        return False

    def is_replicate(self) -> bool:
        return False

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return False


@dataclass(frozen=True)
class Replicate(Placement):
    """The whole tensor everywhere."""

    def is_replicate(self) -> bool:
        return True


@dataclass(frozen=True)
class Shard(Placement):
    """Parts of the tensor along a dimension."""

    dim: int

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or dim == self.dim


@dataclass(frozen=True)
class Partial(Placement):
    """Summands of the tensor."""

    reduce_op: str = "sum"

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return reduce_op is None or reduce_op == self.reduce_op
