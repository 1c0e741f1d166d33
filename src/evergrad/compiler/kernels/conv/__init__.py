"""Convolutions and their gradients: direct, im2col, batch lanes, Winograd."""
