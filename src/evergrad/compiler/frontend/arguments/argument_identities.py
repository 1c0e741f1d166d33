"""Which containers and records among the arguments are objects that the function reaches otherwise,
such as a global: code that compares by ``is`` or ``id()`` distinguishes them from equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evergrad.compiler.frontend.arguments.signature import containers_in
from evergrad.compiler.frontend.state.reached_state import ReachedState


class ArgumentIdentities:
    """The guard on these identities. ``reached`` are the objects that the function reaches
    otherwise, by id: the id of one that has died may be another's, which fails the guard."""

    __slots__ = ("expected", "reached")

    def __init__(self, args: Any, kwargs: Any, state: ReachedState) -> None:
        self.reached: frozenset[int] = frozenset(state.seen)
        self.expected: list[int | None] = self._found(_containers(args, kwargs))

    def _found(self, containers: Sequence[object]) -> list[int | None]:
        reached, held = self.reached, [id(o) for o in containers]
        return [number if number in reached else None for number in held]

    def hold(self, args: object, kwargs: object) -> bool:
        return self.hold_for(_containers(args, kwargs))

    def hold_for(self, containers: Sequence[object]) -> bool:
        """Whether the guard holds for the containers among arguments of the known structure."""
        return self._found(containers) == self.expected


def _containers(args: Any, kwargs: Any) -> list[object]:
    return [o for given in (*args, *kwargs.values()) for o in containers_in(given)]


def identities_of(args: object, kwargs: object, state: ReachedState) -> ArgumentIdentities | None:
    """The guard for a call; ``None`` if the function cannot tell objects apart, or no container is
    among the arguments."""
    if not (state.compares_identity or "id" in state.names):
        return None
    found = ArgumentIdentities(args, kwargs, state)
    return found if found.expected else None
