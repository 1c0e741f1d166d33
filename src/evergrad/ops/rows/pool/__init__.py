"""Sliding windows."""
