"""Engines for quantized tensors: none."""

from __future__ import annotations

engine = "none"
supported_engines: list[str] = ["none"]
