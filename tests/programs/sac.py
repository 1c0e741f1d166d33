"""Soft actor-critic: twin critics, a squashed Gaussian policy, a learned temperature."""

import copy

import torch
from torch import nn
from torch.distributions import Normal


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network(3, 2)

    def forward(self, state):
        mean, scale = self.net(state).chunk(2, -1)
        choice = Normal(mean, nn.functional.softplus(scale) + 1e-3)
        raw = choice.rsample()
        action = torch.tanh(raw)
        log = choice.log_prob(raw) - torch.log1p(-action.pow(2) + 1e-6)
        return action, log.sum(-1, keepdim=True)


def train(steps=8):
    torch.manual_seed(3)
    actor, critics = Actor(), nn.ModuleList([network(4, 1), network(4, 1)])
    targets = copy.deepcopy(critics).requires_grad_(False)
    temperature = torch.zeros(1, requires_grad=True)
    optimizers = [
        torch.optim.Adam(p, lr=1e-2)
        for p in (actor.parameters(), critics.parameters(), [temperature])
    ]
    losses = []
    for _ in range(steps):
        state, action = torch.randn(16, 3), torch.rand(16, 1) * 2 - 1
        following = state + 0.1 * action
        reward = -following.pow(2).sum(-1, keepdim=True)
        with torch.no_grad():
            chosen, log = actor(following)
            pair = torch.cat([following, chosen], -1)
            least = torch.min(*(t(pair) for t in targets))
            goal = reward + 0.9 * (least - temperature.exp() * log)
        pair = torch.cat([state, action], -1)
        critic_loss = sum(nn.functional.mse_loss(c(pair), goal) for c in critics)
        chosen, log = actor(state)
        least = torch.min(*(c(torch.cat([state, chosen], -1)) for c in critics))
        actor_loss = (temperature.exp().detach() * log - least).mean()
        heat_loss = -(temperature * (log.detach() - 1.0)).mean()
        for optimizer, loss in zip(optimizers, (actor_loss, critic_loss, heat_loss), strict=True):
            optimizer.zero_grad()
            loss.backward(inputs=[p for g in optimizer.param_groups for p in g["params"]])
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        losses += [critic_loss.item(), actor_loss.item(), heat_loss.item()]
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
