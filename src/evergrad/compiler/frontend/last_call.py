"""How the last call of a compiled function ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LastCall(NamedTuple):
    """How a call ran: by programs alone (``whole``), by Python as one segment (``traced``) or
    several (``segments``), or eagerly; why not by programs; and what ended its segments: where
    numbers of the data were read."""

    kind: str
    reason: str | None = None
    breaks: Sequence[str] = ()


WHOLE = LastCall("whole")
