"""Forward kinematics and Jacobians of a chain."""

import json

import pytorch_kinematics as pk
import torch

JOINT = """<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/>
<origin xyz="{}" rpy="{}"/><axis xyz="{}"/>
<limit lower="-3" upper="3" effort="1" velocity="1"/></joint>"""
URDF = (
    '<robot name="arm"><link name="base"/><link name="a"/><link name="b"/>'
    + JOINT.format("j1", "base", "a", "0 0 0.1", "0 0.1 0", "0 0 1")
    + JOINT.format("j2", "a", "b", "0.3 0 0", "0 0 0", "0 1 0")
    + "</robot>"
)
chain = pk.build_serial_chain_from_urdf(URDF, "b")
q = torch.tensor([[0.3, -0.5], [1.0, 0.2]], requires_grad=True)
m = chain.forward_kinematics(q).get_matrix()
m[:, :3, 3].pow(2).sum().backward()
found = [
    m.flatten().tolist(),
    q.grad.flatten().tolist(),
    chain.jacobian(q.detach()).flatten().tolist(),
]
print(json.dumps(found))
