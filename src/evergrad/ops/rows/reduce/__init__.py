"""Reductions, scans and order along dimensions."""
