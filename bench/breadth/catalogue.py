"""All families, imported so that their workloads are in the table."""

from __future__ import annotations

from bench.breadth import (
    classical,
    decisions,
    fields,
    higher_order,
    inference,
    recurrent,
    shapes,
    styles,
    tables,
    transformers,
    vision,
)
from bench.breadth.registry import WORKLOADS

FAMILIES = (
    vision, transformers, recurrent, tables, fields, higher_order, decisions, classical, inference,
    shapes, styles,
)  # fmt: skip

__all__ = ["FAMILIES", "WORKLOADS"]
