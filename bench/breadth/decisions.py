"""Reinforcement learning: small networks, lookups, samples, clipped ratios."""

from __future__ import annotations

from typing import Any

from bench.breadth.registry import Data, Work, workload


def _network(torch: Any, inner: int, outer: int) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Linear(inner, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                         nn.Linear(64, outer))  # fmt: skip


@workload()
def dqn(torch: Any) -> Work:
    """With a target network that follows slowly."""
    online, target = _network(torch, 4, 2), _network(torch, 4, 2)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.AdamW(online.parameters(), lr=1e-3, amsgrad=True)
    loss_of = torch.nn.SmoothL1Loss()
    data = Data(torch)

    def step(state: Any, action: Any, reward: Any, after: Any, done: Any) -> Any:
        values = online(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = target(after).max(1).values
        loss = loss_of(values, reward + 0.99 * best * (1 - done))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(online.parameters(), 100)
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.005)
        return loss.detach()

    batch = (
        data.normal(128, 4), data.integers(2, 128), data.normal(128), data.normal(128, 4),
        (data.uniform(128) > 0.9).float(),
    )  # fmt: skip
    return Work(step, (batch,))


@workload()
def ppo(torch: Any) -> Work:
    policy, value = _network(torch, 8, 4), _network(torch, 8, 1)
    parameters = [*policy.parameters(), *value.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=3e-4, eps=1e-5)
    data = Data(torch)

    def step(state: Any, action: Any, old: Any, advantage: Any, returns: Any) -> Any:
        chances = torch.distributions.Categorical(logits=policy(state))
        ratio = torch.exp(chances.log_prob(action) - old)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gained = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        missed = 0.5 * (value(state).flatten() - returns).pow(2).mean()
        loss = missed - gained - 0.01 * chances.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()
        return loss.detach()

    batch = (
        data.normal(256, 8), data.integers(4, 256), data.normal(256, scale=0.1) - 1.4,
        data.normal(256), data.normal(256),
    )  # fmt: skip
    return Work(step, (batch,))


@workload()
def reinforce(torch: Any) -> Work:
    """Actions drawn with ``multinomial``, returns by a loop from the end."""
    policy = _network(torch, 6, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    data = Data(torch)

    def step(states: Any, rewards: Any) -> Any:
        scores = policy(states).log_softmax(-1)
        actions = torch.multinomial(scores.exp(), 1)
        total, returns = torch.zeros(()), []
        for reward in rewards.flip(0):
            total = reward + 0.95 * total
            returns.append(total)
        gains = torch.stack(returns[::-1])
        gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        loss = -(scores.gather(1, actions).squeeze(1) * gains).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Work(step, ((data.normal(40, 6), data.normal(40)),))


@workload()
def soft_actor(torch: Any) -> Work:
    """A squashed normal policy with reparametrised samples and two critics."""
    F = torch.nn.functional
    actor, first, second = _network(torch, 8, 4), _network(torch, 10, 1), _network(torch, 10, 1)
    optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)

    def step(state: Any) -> Any:
        mean, logstd = actor(state).chunk(2, -1)
        normal = torch.distributions.Normal(mean, logstd.clamp(-5, 2).exp())
        drawn = normal.rsample()
        action = torch.tanh(drawn)
        chance = normal.log_prob(drawn) - 2 * (0.6931472 - drawn - F.softplus(-2 * drawn))
        both = torch.cat([state, action], -1)
        value = torch.minimum(first(both), second(both)).squeeze(-1)
        loss = (0.2 * chance.sum(-1) - value).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Work(step, ((Data(torch).normal(128, 8),),))


@workload()
def act_batch_one(torch: Any) -> Work:
    """One observation, one action, no gradients: what an environment waits for."""
    policy = _network(torch, 8, 4)

    def step(state: Any) -> Any:
        with torch.no_grad():
            return policy(state).argmax(-1), policy(state).softmax(-1)

    data = Data(torch)
    return Work(step, tuple((data.normal(1, 8),) for _ in range(4)))


@workload()
def train_batch_one(torch: Any) -> Work:
    """Online learning: one sample for each update."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                          nn.Linear(512, 10))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = Data(torch)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Work(step, tuple((data.normal(1, 256), data.integers(10, 1)) for _ in range(3)))
