"""gymnasium's conversions between arrays and tensors."""

import json

import gymnasium as gym
import torch
from gymnasium.wrappers.numpy_to_torch import NumpyToTorch

env = NumpyToTorch(gym.make("CartPole-v1"), device="cpu")
state, _ = env.reset(seed=0)
assert isinstance(state, torch.Tensor)
states = [state.tolist()]
for action in (0, 1, 1):
    state, reward, *_ = env.step(torch.tensor(action))
    states.append([*state.tolist(), float(reward)])
print(json.dumps(states))
