"""Calls of compiled functions that take the native path, from arguments to results."""
