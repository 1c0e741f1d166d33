"""Agreement of ranks: what each is about to do, compared before anything is done.

A collective is described by its *fingerprint* (what has to be equal: kind, element type, shape,
reduction, root) and its *description* (the same for a reader, with the line of the program). Two
ranks that call different collectives would hang or overwrite memory, so fingerprints are compared
first and the error is raised on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from evergrad.core.source_location import SourceLocation, describe, user_location
from evergrad.distributed.progress import DistributedError


class Call:
    """A call of a collective: its fingerprint, and where the program made it."""

    __slots__ = ("fingerprint", "label", "location")

    def __init__(self, fingerprint: str, label: str = "") -> None:
        self.fingerprint: str = fingerprint
        self.label: str = label
        self.location: SourceLocation | None = user_location(1)

    def __str__(self) -> str:
        what = f" of {self.label}" if self.label else ""
        return f"{self.fingerprint}{what} at {describe(self.location)}"


def digest(text: str) -> int:
    """A 64-bit signed number that identifies a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def mismatch(texts: dict[int, str]) -> DistributedError:
    """The error for ranks that are about to do different things."""
    return DistributedError(
        "the ranks disagree about the next collective; nothing was sent:\n"
        + by_rank(texts)
        + "\n  fix: call the same collectives in the same order on every rank of the group, with "
        "tensors of the same dtype and shape"
    )


def by_rank(texts: dict[int, str]) -> str:
    """A line for every text, with the ranks that have it."""
    ranks: dict[str, list[int]] = {}
    for rank, text in sorted(texts.items()):
        ranks.setdefault(text, []).append(rank)
    return "\n".join(f"  {named(owners)}: {text}" for text, owners in ranks.items())


def named(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0, 2``, or ``ranks 0-7, 9``."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    parts = [str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a}-{b}" for a, b in spans]
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(parts)}"
