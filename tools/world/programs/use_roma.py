"""Rotations in several representations."""

import json

import roma
import torch

torch.manual_seed(0)
v = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
R = roma.rotvec_to_rotmat(v)
q = roma.rotmat_to_unitquat(R)
back = roma.unitquat_to_rotvec(q)
S, scale = roma.special_procrustes(torch.randn(5, 3, 3, dtype=torch.float64)), 1.0
slerp = roma.rotvec_slerp(v[:1], v[1:2], torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
loss = (R - S).pow(2).sum() + slerp.sum() + roma.rotmat_geodesic_distance(R, S).sum()
loss.backward()
print(
    json.dumps(
        [
            loss.item(),
            q.abs().sum().item(),
            back.abs().sum().item(),
            v.grad.sum().item(),
            roma.euler_to_rotmat("xyz", [10.0, 20.0, 30.0], degrees=True).sum().item(),
        ]
    )
)
