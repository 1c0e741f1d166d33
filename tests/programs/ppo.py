"""Proximal policy optimization on a pendulum that is one line of arithmetic."""

import torch
from torch import nn
from torch.distributions import Normal


def advance(state, push):
    angle, speed = state.unbind(-1)
    speed = 0.95 * speed + 0.1 * push - 0.05 * torch.sin(angle)
    return torch.stack([angle + 0.1 * speed, speed], -1)


def collect(actor, critic, count=8, steps=10):
    state = torch.randn(count, 2)
    rows = []
    with torch.no_grad():
        for _ in range(steps):
            choice = Normal(actor(state).squeeze(-1), 0.5)
            push = choice.sample()
            following = advance(state, push)
            reward = -following.pow(2).sum(-1)
            rows.append((state, push, choice.log_prob(push), reward, critic(state).squeeze(-1)))
            state = following
        last = critic(state).squeeze(-1)
    return [torch.stack(column) for column in zip(*rows, strict=True)], last


def advantages(rewards, values, last, gamma=0.95, smooth=0.9):
    found, carried, after = torch.empty_like(rewards), torch.zeros_like(last), last
    for t in reversed(range(len(rewards))):
        carried = rewards[t] + gamma * after - values[t] + gamma * smooth * carried
        found[t], after = carried, values[t]
    return found


def train(rounds=3):
    torch.manual_seed(2)
    actor = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    losses = []
    for _ in range(rounds):
        (states, pushes, logs, rewards, values), last = collect(actor, critic)
        gain = advantages(rewards, values, last)
        target = gain + values
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        for _ in range(3):
            choice = Normal(actor(states).squeeze(-1), 0.5)
            ratio = (choice.log_prob(pushes) - logs).exp()
            clipped = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            worth = nn.functional.mse_loss(critic(states).squeeze(-1), target)
            loss = -clipped + 0.5 * worth - 0.01 * choice.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
