"""Names of PyTorch that exist so that its programs run: they answer, and compute nothing.

The folder is part of the search path of the package ``evergrad``: ``compat/torch/cuda`` is imported
as ``evergrad.cuda``, and only so. Modules here import each other relatively, so that type checkers,
which find them by their place, agree. ``as_torch`` runs programs for PyTorch unchanged.
"""
