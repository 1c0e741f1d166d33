"""What this is: version, and the libraries it was not built with."""

from __future__ import annotations

import evergrad

__version__: str = evergrad.__version__
debug = False
cuda: str | None = None
git_version = "unknown"
hip: str | None = None
rocm: str | None = None
xpu: str | None = None

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]
