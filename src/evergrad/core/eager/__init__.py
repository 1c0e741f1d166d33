"""Eager evaluation of large arrays: kernels, parallel ufuncs, fused updates."""
