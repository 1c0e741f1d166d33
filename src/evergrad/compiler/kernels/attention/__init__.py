"""Tiled attention, forward and backward, without the matrix of scores."""
