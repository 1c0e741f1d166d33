"""Thin plate splines that map points to points."""

import json

import torch
from torch_tps import ThinPlateSpline

torch.manual_seed(0)
here, there = torch.rand(12, 2), torch.rand(12, 3)
spline = ThinPlateSpline(alpha=0.1)
spline.fit(here, there)
found = spline.transform(torch.rand(5, 2))
inverse = ThinPlateSpline(alpha=0.5, order=3)
inverse.fit(there, here)
back = inverse.transform(found)
print(json.dumps([found.flatten().tolist(), back.flatten().tolist()]))
