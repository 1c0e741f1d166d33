"""Programs written for PyTorch, run by evergrad without a change.

``python -m evergrad.as_torch script.py`` runs one; :func:`install` lets the running process import
``torch`` and ``torchvision``. What they offer are evergrad's own objects: a class keeps its
evergrad name when it is printed or pickled; ``Tensor`` and ``Parameter`` are ``torch.Tensor`` and
``torch.nn.parameter.Parameter`` as long as this is installed.
"""

from .finder import install, uninstall
from .version import TORCH_VERSION, TorchVersion

__all__ = ["TORCH_VERSION", "TorchVersion", "install", "uninstall"]
