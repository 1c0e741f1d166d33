"""An actor and a critic learn to walk to the end of a corridor."""

from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

Choice = namedtuple("Choice", ["log_prob", "value", "entropy"])


class Corridor:
    """A walk on a line with a draught that sometimes blows one step back; the end pays 1."""

    LENGTH = 6

    def reset(self):
        self.place = self.time = 0
        return self.observe()

    def observe(self):
        return F.one_hot(torch.tensor(self.place), self.LENGTH).to(torch.get_default_dtype())

    def step(self, action):
        self.time += 1
        self.place += 1 if action == 1 else -1
        if torch.rand(()) < 0.1:
            self.place -= 1
        self.place = max(self.place, 0)
        arrived = self.place >= self.LENGTH - 1
        self.place = min(self.place, self.LENGTH - 1)
        reward = 1.0 if arrived else -0.05
        return self.observe(), reward, arrived or self.time >= 20


class Policy(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.shared = nn.Linear(Corridor.LENGTH, hidden)
        self.actor = nn.Linear(hidden, 2)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, observation):
        x = F.elu(self.shared(observation))
        return Categorical(logits=self.actor(x)), self.critic(x).squeeze(-1)

    def act(self, observation):
        distribution, value = self(observation)
        action = distribution.sample()
        return action.item(), Choice(distribution.log_prob(action), value, distribution.entropy())


def play(environment, policy):
    choices, rewards = [], []
    observation, done = environment.reset(), False
    while not done:
        action, choice = policy.act(observation)
        observation, reward, done = environment.step(action)
        choices.append(choice)
        rewards.append(reward)
    return choices, rewards


def discounted(rewards, gamma=0.95):
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    return (returns - returns.mean()) / (returns.std() + 1e-5)


def train(steps=12):
    torch.manual_seed(11)
    environment, policy = Corridor(), Policy()
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=0.01, alpha=0.99, eps=1e-5)
    losses = []
    for _ in range(steps):
        choices, rewards = play(environment, policy)
        returns = discounted(rewards)
        log_probs, values, entropies = (torch.stack(part) for part in zip(*choices, strict=True))
        advantage = returns - values.detach()
        policy_loss = -(log_probs * advantage).sum()
        value_loss = F.smooth_l1_loss(values, returns, reduction="sum")
        loss = policy_loss + value_loss - 0.01 * entropies.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.item(), sum(rewards)]
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
