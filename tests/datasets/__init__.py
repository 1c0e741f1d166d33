"""Data sets, images and transforms."""
