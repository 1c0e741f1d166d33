"""PPO, DQN and SAC of stable-baselines3 on a small environment; saved and loaded."""

import json
import tempfile

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.utils import set_random_seed


class Line(gym.Env):
    """Walk to the origin; the action is a direction or a step."""

    def __init__(self, continuous=False):
        self.observation_space = gym.spaces.Box(-5, 5, (2,), np.float32)
        box = gym.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = box if continuous else gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.t = 2.0, 0
        return np.array([self.x, 0], np.float32), {}

    def step(self, action):
        move = float(np.asarray(action).reshape(-1)[0])
        self.x += 0.5 * (move if isinstance(self.action_space, gym.spaces.Box) else 2 * move - 1)
        self.x = float(np.clip(self.x, -5, 5))
        self.t += 1
        return np.array([self.x, self.t / 20], np.float32), -abs(self.x), False, self.t >= 20, {}


torch.set_num_threads(1)
found = {}
small = {"net_arch": [16]}
for kind, options in (
    (PPO, {"n_steps": 64, "batch_size": 32, "n_epochs": 2}),
    (DQN, {"learning_starts": 50, "buffer_size": 500, "target_update_interval": 40}),
    (SAC, {"learning_starts": 50, "buffer_size": 500}),
):
    set_random_seed(0)
    model = kind(
        "MlpPolicy", Line(kind is SAC), seed=0, device="cpu", policy_kwargs=small, **options
    )
    model.learn(128)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder + "/model.zip")
        model = kind.load(folder + "/model.zip", device="cpu")
    actions = [
        model.predict(np.array([x, 0.5], np.float32), deterministic=True)[0] for x in (-2, 2)
    ]
    weights = [p.detach().double().abs().sum().item() for p in model.policy.parameters()]
    found[kind.__name__] = [np.array(actions).tolist(), weights]
print(json.dumps(found))
