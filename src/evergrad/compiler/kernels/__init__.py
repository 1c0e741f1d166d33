"""Kernels that are not plain loop nests, one package for each kind."""
