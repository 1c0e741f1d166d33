"""Optimizations of graphs."""
