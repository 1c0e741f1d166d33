"""Eager evaluation of large arrays: fusion, kernels, parallel ufuncs, fused updates."""
