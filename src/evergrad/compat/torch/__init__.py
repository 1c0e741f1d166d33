"""Names of PyTorch that exist so that its programs run: they answer, and compute nothing.

The folder is part of the search path of the package ``evergrad``: ``compat/torch/cuda`` is imported
as ``evergrad.cuda``, and only so, as ``torch.cuda`` is by programs for PyTorch. ``as_torch`` runs
such programs unchanged.
"""
