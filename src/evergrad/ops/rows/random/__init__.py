"""Draws."""
