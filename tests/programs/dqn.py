"""Deep Q-learning with a replay buffer and a slowly following target network."""

import copy
import random
from collections import deque

import torch
import torch.nn as nn


class Pendulum:
    """A stick that is to be kept upright by pushes to the left and to the right."""

    def reset(self):
        self.state = torch.empty(2).uniform_(-0.2, 0.2)
        return self.state.clone()

    def step(self, action):
        angle, speed = self.state
        speed = speed + 0.1 * torch.sin(angle) + (0.15 if action else -0.15)
        self.state = torch.stack([angle + 0.2 * speed, speed])
        fallen = bool(self.state[0].abs() > 0.6)
        return self.state.clone(), 0.0 if fallen else 1.0, fallen


class QNetwork(nn.Module):
    """Dueling heads: the worth of a state, and what an action adds to it."""

    def __init__(self, hidden=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, hidden), nn.Softsign())
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, 2)

    def forward(self, state):
        x = self.body(state)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(dim=-1, keepdim=True)


class Agent:
    def __init__(self):
        self.online = QNetwork()
        self.target = copy.deepcopy(self.online).eval()
        self.optimizer = torch.optim.AdamW(self.online.parameters(), lr=5e-3, amsgrad=True)
        self.criterion = nn.SmoothL1Loss()
        self.memory = deque(maxlen=200)

    def act(self, state, exploration):
        if random.random() < exploration:
            return random.randrange(2)
        with torch.no_grad():
            return self.online(state).max(-1).indices.item()

    def learn(self, size=16, gamma=0.9, follow=0.1):
        batch = random.sample(self.memory, size)
        states, actions, rewards, following, ends = zip(*batch, strict=True)
        states, following = torch.stack(states), torch.stack(following)
        worth = self.online(states).gather(1, torch.tensor(actions).view(-1, 1)).squeeze(1)
        with torch.no_grad():
            best = self.online(following).argmax(dim=1, keepdim=True)
            later = self.target(following).take_along_dim(best, dim=1).squeeze(1)
            later = later.masked_fill(torch.tensor(ends), 0.0)
        loss = self.criterion(worth, torch.tensor(rewards) + gamma * later)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        weights, slow = self.online.state_dict(), self.target.state_dict()
        for name in weights:
            slow[name] = weights[name] * follow + slow[name] * (1 - follow)
        self.target.load_state_dict(slow)
        return loss.item()


def train(episodes=6):
    torch.manual_seed(25)
    random.seed(25)
    environment, agent = Pendulum(), Agent()
    losses = []
    for episode in range(episodes):
        state, fallen, time = environment.reset(), False, 0
        while not fallen and time < 15:
            action = agent.act(state, exploration=0.5 * 0.8**episode)
            following, reward, fallen = environment.step(action)
            agent.memory.append((state, action, reward, following, fallen))
            state, time = following, time + 1
            if len(agent.memory) >= 16:
                losses.append(agent.learn())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
