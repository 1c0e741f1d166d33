"""Layers under the module paths PyTorch programs import them from.

``evergrad.nn`` groups layers by idea; the table says which of its modules corresponds to which of
PyTorch's. Both names mean one module.
"""

import sys
from importlib import import_module

from evergrad import nn

_HOMES = {
    "adaptive": "embedding",
    "batchnorm": "norm",
    "channelshuffle": "shape",
    "container": "containers",
    "conv": "conv",
    "distance": "loss",
    "dropout": "dropout",
    "flatten": "shape",
    "fold": "shape",
    "instancenorm": "norm",
    "lazy": "lazy",
    "linear": "linear",
    "loss": "loss",
    "module": "module",
    "normalization": "norm",
    "padding": "padding",
    "pixelshuffle": "shape",
    "pooling": "pooling",
    "rnn": "rnn",
    "sparse": "embedding",
    "transformer": "transformer",
    "upsampling": "shape",
}

__all__ = [name for name in nn.__all__ if name[0].isupper()]
globals().update({_name: getattr(nn, _name) for _name in __all__})

for _name, _home in _HOMES.items():
    _module = import_module(f"evergrad.nn.{_home}")
    sys.modules[f"{__name__}.{_name}"] = _module
    globals()[_name] = _module
