"""Reads and writes at indices and masks."""
