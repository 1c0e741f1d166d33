"""Lets torchvision's wheel, which is built for CUDA, be imported beside a CPU build of PyTorch.

Its native library does not load there; torchvision goes on without, but for two operators whose
shape rules it registers without a check. Declaring them is enough.
"""

import ctypes
import importlib.util
from pathlib import Path

import torch

found = importlib.util.find_spec("torchvision")
if found is not None and found.origin is not None:
    try:
        ctypes.CDLL(str(Path(found.origin).parent / "_C.so"))
    except OSError:
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
