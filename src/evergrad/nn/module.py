"""The base of all layers: a tree of modules that own parameters and buffers.

Owns registration, walking the tree, modes and calling. Saving and loading are in
:mod:`evergrad.nn.state`, hooks in :mod:`evergrad.nn.hooks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from evergrad.core import dtypes
from evergrad.core.device import Device, check_device
from evergrad.core.dtypes import dtype
from evergrad.core.functionalize import note_grad_access, note_module
from evergrad.core.meta import MetaTensor
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.package_name import package_name
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor
from evergrad.core.types import StateDict
from evergrad.nn.hooks import (
    HookTables,
    ModuleHooks,
    _global_buffer_registration_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
    registered,
)
from evergrad.nn.parameter import Buffer, Parameter, is_lazy
from evergrad.nn.state import ModuleState
from evergrad.nn.tables import Table
from evergrad.ops.rows.creation.constants import empty_like

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike

M = TypeVar("M", bound="Module")


def _refuse_arguments(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> NoReturn:
    if kwargs:
        raise TypeError(
            f"{name}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'"
        )
    raise TypeError(f"{name}.__init__() takes 1 positional argument but {len(args) + 1} were given")


class Module(ModuleState, ModuleHooks):
    """Subclass it, make parameters and submodules in ``__init__``, compute in ``forward``."""

    training: bool
    dump_patches = False
    # Whether the classes after this one in the method resolution order get the arguments.
    call_super_init = False

    def __init__(self, *args: object, **kwargs: object) -> None:
        if not self.call_super_init and (args or kwargs):
            _refuse_arguments(type(self).__name__, args, kwargs)
        fields = self.__dict__
        fields["training"] = True
        fields["_parameters"] = Table()
        fields["_buffers"] = Table()
        fields["_non_persistent_buffers_set"] = set()
        fields["_modules"] = Table()
        fields["_hooks"] = None
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- attributes -------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__
        try:
            return fields["_parameters"][name]
        except KeyError:
            pass
        for table in ("_modules", "_buffers"):
            if table in fields and name in fields[table]:
                return fields[table][name]
        raise AttributeError(
            f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self
        )

    def __setattr__(self, name: str, value: object) -> None:
        fields = self.__dict__
        if isinstance(value, Parameter):
            self._forget(name, keep="_parameters")
            self.register_parameter(name, value)
        elif "_parameters" in fields and name in fields["_parameters"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as parameter '{name}' "
                    f"({package_name()}.nn.Parameter or None expected)"
                )
            fields["_parameters"][name] = None
        elif isinstance(value, Module):
            self._forget(name, keep="_modules")
            made = registered(_global_module_registration_hooks, self, name, value)
            fields["_modules"][name] = made
        elif "_modules" in fields and name in fields["_modules"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as child module '{name}' "
                    "(evergrad.nn.Module or None expected)"
                )
            fields["_modules"][name] = None
        elif isinstance(value, Buffer):
            self._forget(name, keep="_buffers")
            self.register_buffer(name, value, value.__dict__.get("persistent", True))
        elif "_buffers" in fields and name in fields["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as buffer '{name}' "
                    "(evergrad.Tensor or None expected)"
                )
            made = registered(_global_buffer_registration_hooks, self, name, value)
            fields["_buffers"][name] = made
        else:
            super().__setattr__(name, value)
        MUTATIONS.advance()

    def __delattr__(self, name: str) -> None:
        for table in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[table]:
                del self.__dict__[table][name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)
        MUTATIONS.advance()

    def _require_init(self) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(
                f"cannot assign parameters or modules before {type(self).__name__} called "
                "super().__init__(); make that the first line of its __init__"
            )

    def _forget(self, name: str, keep: str) -> None:
        """Make way for a new meaning of a name; in the table that stays it keeps its place."""
        self._require_init()
        self.__dict__.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != keep:
                self.__dict__[table].pop(name, None)
        self._non_persistent_buffers_set.discard(name)

    def __dir__(self) -> list[str]:
        names = set(dir(type(self))) | set(self.__dict__)
        names |= set(self._parameters) | set(self._buffers) | set(self._modules)
        return sorted(n for n in names if not n[:1].isdigit())

    # -- registration -----------------------------------------------------------------------

    def _check_name(self, kind: str, name: object, table: str) -> None:
        self._require_init()
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name."""
        self._check_name("parameter", name, "_parameters")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(
                f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                f"({package_name()}.nn.Parameter or None required)"
            )
        if param is not None and param.grad_fn is not None:
            raise ValueError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be "
                "created explicitly."
            )
        if param is not None:
            param = registered(_global_parameter_registration_hooks, self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add state that is no parameter; part of ``state_dict`` if ``persistent``."""
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(
                f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' "
                "(evergrad.Tensor or None required)"
            )
        self._buffers[name] = registered(_global_buffer_registration_hooks, self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule under a name."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(
                f"{type(module).__name__} is not a Module subclass{_as_modules(module)}"
            )
        self._check_name("module", name, "_modules")
        self._modules[name] = registered(_global_module_registration_hooks, self, name, module)

    register_module = add_module

    # -- walking ----------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, with their dotted names; each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = prefix + ("." if prefix else "") + name
                yield from module.named_modules(memo, below, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct submodules with their names; each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly below."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, value in module.__dict__[table].items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """All parameters with their dotted names."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters; a shared one once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """All buffers with their dotted names."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and of those below it."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The submodule at a dotted path."""
        module: Module = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{type(module).__name__} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted path, with ``strict`` only where one stands already."""
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(name)
        if found is None:
            raise AttributeError(f"`{target}` is not an nn.Parameter of {type(self).__name__}")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path)._buffers.get(name)
        if found is None:
            raise AttributeError(f"`{target}` is not a buffer of {type(self).__name__}")
        return found

    # -- changing everything at once --------------------------------------------------------

    def apply(self: M, fn: Callable[[Module], object]) -> M:
        """Call ``fn`` on every submodule and on this one, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self: M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Replace the data of every parameter, its gradient and every buffer by ``fn`` of it."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            with using(grad=False):
                value = fn(parameter.data)
                if isinstance(parameter, MetaTensor) or isinstance(value, MetaTensor):
                    self._parameters[name] = Parameter(value, parameter.requires_grad)
                    continue
                parameter.data = value
                if parameter._grad is not None:
                    parameter._grad = fn(parameter._grad)
        for name, buffer in self._buffers.items():
            if buffer is None:
                continue
            if is_lazy(buffer):
                buffer.data = fn(buffer.data)
            else:
                self._buffers[name] = fn(buffer)
        return self

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Convert the floating-point parameters and buffers to another dtype."""
        target = kwargs.get("dtype")
        places = [kwargs["device"]] if kwargs.get("device") is not None else []
        for value in args:
            if isinstance(value, (dtype, type)):
                target = value
            elif isinstance(value, Tensor):
                target = value.dtype
            elif isinstance(value, (str, Device)):
                places.append(value)
        device = check_device(places[-1]) if places else None
        if device is not None and (device.type == "meta" or _has_meta(self)):
            self._apply(lambda t: t.to(device))
        if target is None:
            return self
        target = dtypes.as_dtype(target)
        if target.category < dtypes.FLOATING:
            raise TypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got {target}"
            )
        return self._apply(lambda t: t.to(target) if t.dtype.category >= dtypes.FLOATING else t)

    def type(self: M, dst_type: Any) -> M:
        """Convert all parameters and buffers to an element type."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self: M) -> M:
        """Convert all floating-point parameters and buffers to float32."""
        return self.to(dtypes.float32)

    def double(self: M) -> M:
        """Convert all floating-point parameters and buffers to float64."""
        return self.to(dtypes.float64)

    def half(self: M) -> M:
        """Convert all floating-point parameters and buffers to float16."""
        return self.to(dtypes.float16)

    def bfloat16(self: M) -> M:
        """Convert all floating-point parameters and buffers to bfloat16."""
        return self.to(dtypes.bfloat16)

    def cpu(self: M) -> M:
        """The same: everything is on the CPU."""
        return self

    def cuda(self: M, device: DeviceLike = None) -> M:
        """Refused: there is no GPU."""
        check_device("cuda")
        return self

    def to_empty(self: M, *, device: DeviceLike, recurse: bool = True) -> M:
        """Keep shapes and types, forget the numbers."""
        place = check_device("cpu" if device is None else device)
        return self._apply(lambda t: empty_like(t, device=place), recurse)

    def share_memory(self: M) -> M:
        """Move parameters and buffers to memory that forked processes share."""
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    def train(self: M, mode: bool = True) -> M:
        """Set training mode here and below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        if self.__dict__.get("training") is not mode:
            self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: M) -> M:
        """Set evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Ask, or stop asking, for the gradient of every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero."""
        for parameter in self.parameters():
            note_grad_access(parameter)
            if parameter._grad is None:
                continue
            if set_to_none:
                parameter._grad = None
            else:
                parameter._grad.detach_().zero_()

    # -- calling ----------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function. '
            "Define forward(self, ...) in the body of the class; ModuleList and ModuleDict have "
            "none: call their modules one by one."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hooks: HookTables | None = self.__dict__["_hooks"]
        if STATE.get().trace is not None:
            note_module(self)
        if hooks is None and not HookTables.everywhere:
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """The call under the names by which packages wrap it."""
        return Module.__call__(self, *args, **kwargs)

    _wrapped_call_impl = _call_impl

    # -- text and copies --------------------------------------------------------------------

    def compile(self, *args: object, **kwargs: object) -> None:
        """Accepted, and without effect on results: ``evergrad.compile(module)`` compiles."""

    def extra_repr(self) -> str:
        """What stands between the brackets of the text form; for subclasses."""
        return ""

    def _get_name(self) -> str:
        return self.__class__.__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = [
            f"({name}): " + repr(module).replace("\n", "\n  ")
            for name, module in self._modules.items()
        ]
        name = self._get_name()
        if not lines and not below:
            return f"{name}()"
        if len(lines) == 1 and not below:
            return f"{name}({lines[0]})"
        return f"{name}(\n  " + "\n  ".join(lines + below) + "\n)"

    def __setstate__(self, state: StateDict) -> None:
        self.__dict__.update(state)
        for name in ("_parameters", "_buffers", "_modules"):
            if name in state and not isinstance(state[name], Table):
                self.__dict__[name] = Table(state[name])
        for name, default in (("_hooks", None), ("_non_persistent_buffers_set", set())):
            self.__dict__.setdefault(name, default)


def _has_meta(module: Module) -> bool:
    """Whether a parameter or buffer is on the device ``meta``."""
    return any(isinstance(t, MetaTensor) for t in (*module.parameters(), *module.buffers()))


__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook",
    "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]  # fmt: skip


def _as_modules(given: object) -> str:
    """How to pass modules that are given as one list."""
    if not isinstance(given, (list, tuple)):
        return ""
    return "; pass its modules one by one: Sequential(*modules)"


if TYPE_CHECKING:

    class TensorModule(Module):
        """A module whose calls give a tensor, for type checkers: ``return self.linear(x)`` is a
        ``Tensor`` in a program that is checked strictly."""

        def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...

else:
    TensorModule = Module
