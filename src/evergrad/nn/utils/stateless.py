"""``functional_call`` under the path it first had."""

from __future__ import annotations

from evergrad.func.modules import functional_call

__all__ = ["functional_call"]
