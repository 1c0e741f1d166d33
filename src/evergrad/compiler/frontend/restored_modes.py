"""The modes that a traced call sets for the code after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evergrad.compiler.frontend.session import Session
from evergrad.core.state import State, set_mode

if TYPE_CHECKING:
    from evergrad.core.autocast import Autocast


def all_modes_of(state: State) -> tuple[bool, bool, Autocast | None, bool]:
    """The modes that a function may set for the code after it."""
    return state.grad, state.inference, state.autocast, state.anomaly


@contextmanager
def restored_modes(before: State, session: Session) -> Iterator[None]:
    """Keep the modes that a call has set for the code after it; the session is over then."""
    try:
        yield
        modes = session.modes
        if modes is not None and all_modes_of(modes) != all_modes_of(before):
            set_mode(grad=modes.grad, no_grad=not modes.grad, inference=modes.inference,
                     autocast=modes.autocast, anomaly=modes.anomaly)  # fmt: skip
    finally:
        session.release()
