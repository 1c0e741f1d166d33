"""The package that finds the order of contractions for ``einsum``: always used."""

from __future__ import annotations

from typing import Any

enabled = True
strategy = "auto"


def is_available() -> bool:
    """Whether ``einsum`` looks for a good order: yes."""
    return True


def get_opt_einsum() -> Any:
    """The package itself."""
    import opt_einsum

    return opt_einsum
