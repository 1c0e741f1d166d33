"""REINFORCE with a baseline learns to walk to the right end of a corridor."""

import torch
from torch import nn
from torch.distributions import Categorical

LENGTH = 6


def play(policy):
    """One walk: the log-probabilities of the steps, and the rewards."""
    place, logs, rewards = LENGTH // 2, [], []
    for _ in range(8):
        state = torch.zeros(LENGTH)
        state[place] = 1.0
        choice = Categorical(logits=policy(state))
        step = choice.sample()
        logs.append(choice.log_prob(step))
        place = min(max(place + (1 if step.item() else -1), 0), LENGTH - 1)
        rewards.append(float(place == LENGTH - 1) - 0.1)
    return torch.stack(logs), torch.tensor(rewards)


def train(episodes=10):
    torch.manual_seed(1)
    policy = nn.Sequential(nn.Linear(LENGTH, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    losses, baseline = [], 0.0
    for _ in range(episodes):
        logs, rewards = play(policy)
        returns = rewards.flip(0).cumsum(0).flip(0)
        loss = -(logs * (returns - baseline)).sum()
        baseline = 0.9 * baseline + 0.1 * returns.mean().item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
