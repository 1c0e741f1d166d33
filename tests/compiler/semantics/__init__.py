"""Pairs eager/compiled: what a compiled call does to Python is what the eager call does."""
