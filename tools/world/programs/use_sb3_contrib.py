"""Agents of sb3-contrib: QR-DQN, TQC, TRPO, ARS."""

import json

import numpy as np
import torch
from sb3_contrib import QRDQN, TQC, TRPO

torch.manual_seed(0)
found = []
for make, world, further in (
    (TRPO, "CartPole-v1", {"n_steps": 64, "batch_size": 32}),
    (QRDQN, "CartPole-v1", {"learning_starts": 20, "buffer_size": 200, "batch_size": 16}),
    (TQC, "Pendulum-v1", {"learning_starts": 20, "buffer_size": 200, "batch_size": 16}),
):
    agent = make(
        "MlpPolicy", world, seed=1, device="cpu", policy_kwargs={"net_arch": [16]}, **further
    )
    agent.learn(80)
    found.append([p.abs().sum().item() for p in agent.policy.parameters()][:4])
    obs = np.full(agent.observation_space.shape, 0.1, np.float32)
    found.append(
        np.asarray(agent.predict(obs, deterministic=True)[0], np.float64).reshape(-1).tolist()
    )
print(json.dumps(found))
