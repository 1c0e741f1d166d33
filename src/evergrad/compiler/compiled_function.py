"""What type checkers see of a compiled function: its own parameters and result, and the plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypedDict, TypeVar

if TYPE_CHECKING:
    from evergrad.compiler.explain.report import Explanation
    from evergrad.compiler.frontend.last_call import LastCall
    from evergrad.compiler.schedule.memory_plan import Plan
    from evergrad.core.types import AnyFunction

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CompiledFunction(Protocol[P, R_co]):
    """The methods of :class:`~evergrad.compiler.api.Compiled`, with the types of the function."""

    __name__: str
    __wrapped__: AnyFunction
    last_call: LastCall | None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def __get__(self, instance: object, owner: object = None) -> Callable[..., R_co]: ...

    def loop(self, *args: object, **kwargs: object) -> Any:
        """Call the function for each row of the tensors among its arguments."""

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan:
        """The memory plan for these arguments, without running anything."""

    def explain(self, *args: object, passes: bool = False, **kwargs: object) -> Explanation:
        """Report the compiled program for these arguments."""


class ModuleLike(Protocol):
    """What :func:`evergrad.compile` takes as a module."""

    forward: Any

    def parameters(self) -> Iterator[Any]: ...


class TorchOptions(TypedDict, total=False):
    """Options of ``torch.compile``, which have no effect: there is one backend."""

    backend: object
    disable: bool
    dynamic: bool | None
    isolate_recompiles: object
    mode: str | None
    name: object
    options: object
    recompile_limit: object
    shapes_spec: object
