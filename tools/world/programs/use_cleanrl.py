"""A program in CleanRL's style: PPO on gymnasium's CartPole in one file."""

import json

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical

torch.manual_seed(1)
torch.backends.cudnn.deterministic = True
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])


def layer(i, o, std=np.sqrt(2)):  # noqa: B008 - as CleanRL writes it
    linear = nn.Linear(i, o)
    torch.nn.init.orthogonal_(linear.weight, std)
    torch.nn.init.constant_(linear.bias, 0.0)
    return linear


actor = nn.Sequential(layer(4, 16), nn.Tanh(), layer(16, 2, 0.01)).to(device)
critic = nn.Sequential(layer(4, 16), nn.Tanh(), layer(16, 1, 1.0)).to(device)
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=2.5e-3, eps=1e-5)
observation, _ = envs.reset(seed=1)
state = torch.Tensor(observation).to(device)
found = []
for _ in range(3):
    rows = []
    for _ in range(16):
        with torch.no_grad():
            policy = Categorical(logits=actor(state))
            action = policy.sample()
            value = critic(state).flatten()
        observation, reward, *_ = envs.step(action.cpu().numpy())
        reward = torch.tensor(reward).to(device).view(-1)
        rows.append((state, action, policy.log_prob(action), reward, value))
        state = torch.Tensor(observation).to(device)
    states, actions, former, rewards, values = (torch.stack(c) for c in zip(*rows, strict=True))
    returns = rewards.float().flip(0).cumsum(0).flip(0)
    advantage = returns - values
    for _ in range(2):
        policy = Categorical(logits=actor(states))
        ratio = (policy.log_prob(actions) - former).exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        value_loss = 0.5 * (critic(states).squeeze(-1) - returns).pow(2).mean()
        loss = -surrogate.mean() + 0.5 * value_loss - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        found.append(loss.item())
print(json.dumps(found))
