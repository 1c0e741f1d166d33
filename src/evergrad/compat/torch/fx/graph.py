"""Graphs under PyTorch's path."""

from .node import Graph, Node

__all__ = ["Graph", "Node"]
