"""Mixed precision under its former CPU spelling."""

from __future__ import annotations

from evergrad.amp.former import FormerAutocast, FormerGradScaler


class autocast(FormerAutocast):  # noqa: N801 - PyTorch's spelling
    """``amp.autocast("cpu")``"""

    device_type = "cpu"


class GradScaler(FormerGradScaler):
    """``amp.GradScaler("cpu")``"""

    device_type = "cpu"


__all__ = ["GradScaler", "autocast"]
