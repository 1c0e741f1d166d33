"""Which page of the key-value pool belongs to which sequence, and which may be shared.

A page holds the keys and values of ``PAGE`` tokens in a row. Page 0 is never given out: it stays
zero and fills the tables of shorter sequences. A page of a prompt is named by all tokens up to its
end, so that a later prompt with the same beginning uses it instead of computing it again; pages
that no sequence uses are kept for that until their room is needed, the least recently used first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from evergrad.models.model import require

PAGE = 16  # tokens; also the rows of a prefill program, so chunks of prompts end with pages


def pages_for(tokens: int) -> int:
    """How many pages hold so many tokens."""
    return -(-tokens // PAGE)


def chunk_names(tokens: Sequence[int], root: str) -> list[bytes]:
    """A name for each full page of a prompt; ``root`` sets apart what weights made them."""
    name = hashlib.blake2b(root.encode(), digest_size=16).digest()
    found = []
    for end in range(PAGE, len(tokens) + 1, PAGE):
        chunk = np.asarray(tokens[end - PAGE : end], np.int64).tobytes()
        name = hashlib.blake2b(name + chunk, digest_size=16).digest()
        found.append(name)
    return found


class PageTable:
    """Counts the users of each page. Nothing here touches keys or values."""

    def __init__(self, count: int) -> None:
        require(count >= 1, f"there are {count} pages", "give the pool room for at least one")
        self.count = count  # without page 0
        self._users = [0] * (count + 1)
        self._free = list(range(count, 0, -1))
        self._names: dict[bytes, int] = {}
        self._name_of: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # named, no user; oldest first
        self.reserved: int = 0  # pages promised to sequences that have not taken them yet
        self.reused = 0  # pages that were found instead of computed, so far

    @property
    def available(self) -> int:
        """Pages that could still be promised."""
        return len(self._free) + len(self._idle) - self.reserved

    @property
    def used(self) -> int:
        return self.count - len(self._free) - len(self._idle)

    def reserve(self, count: int) -> bool:
        """Promise pages, so that :meth:`take` cannot fail; False if there are not so many."""
        if count > self.available:
            return False
        self.reserved += count
        return True

    def take(self) -> int:
        """One of the promised pages."""
        assert self.reserved > 0, "pages are reserved before they are taken"
        self.reserved -= 1
        if not self._free:
            page, _ = self._idle.popitem(last=False)
            del self._names[self._name_of.pop(page)]
            self._free.append(page)
        page = self._free.pop()
        self._users[page] = 1
        return page

    def users(self, page: int) -> int:
        return self._users[page]

    def share(self, page: int) -> None:
        """One more user of a page."""
        self._users[page] += 1
        self._idle.pop(page, None)

    def give_back(self, page: int) -> None:
        """One user less; a page with a name is kept as long as there is room."""
        self._users[page] -= 1
        if self._users[page]:
            return
        if page in self._name_of:
            self._idle[page] = None
        else:
            self._free.append(page)

    def name(self, page: int, name: bytes) -> None:
        """Let later prompts find a page; of two that are computed alike the first stays."""
        if name not in self._names and page not in self._name_of:
            self._names[name] = page
            self._name_of[page] = name

    def find(self, names: Sequence[bytes]) -> list[int]:
        """The longest row of known pages from the beginning on; nothing is taken yet."""
        found = []
        for name in names:
            page = self._names.get(name)
            if page is None:
                break
            found.append(page)
        return found

    def idle_among(self, pages: Sequence[int]) -> int:
        """How many of these would no longer be available once shared."""
        return sum(self._users[page] == 0 for page in pages)

    def forget(self) -> None:
        """Drop all names, for other weights."""
        self._free += self._idle
        self._idle.clear()
        self._names.clear()
        self._name_of.clear()
