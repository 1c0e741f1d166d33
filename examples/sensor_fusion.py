"""Estimate a state from sensors that measure at different rates.

    python examples/sensor_fusion.py [--seconds 400]

In each second three sensors deliver 2, 8 and 50 samples. A window stacks what came in, in the
common shape with zeros where a slow sensor has none; the pyramid above it stacks windows. Each
sensor has a filter of its own length, learned by gradients; the estimate is the sum of what the
filters find.
"""

from __future__ import annotations

import argparse

import numpy as np

import evergrad as eg
from evergrad import optim, ragged

RATES = (2, 8, 50)
NOISE = (0.02, 0.1, 0.5)  # the slow sensor is the best one


def second(rng: np.random.Generator) -> tuple[float, list[ragged.Tensor]]:
    """The state in one second, and what the sensors measure of it."""
    state = rng.standard_normal()
    samples = zip(RATES, NOISE, strict=True)
    return state, [ragged.tensor(state + s * rng.standard_normal(n)) for n, s in samples]


def learn(seconds: int = 400) -> tuple[list[ragged.Tensor], float]:
    """The filters, and the root of the mean squared error of seconds that were not learned from."""
    rng = np.random.default_rng(0)
    filters = [ragged.tensor(np.zeros(n), requires_grad=True) for n in RATES]
    optimizer = optim.LBFGS([f.dense for f in filters], max_iter=100, line_search_fn="strong_wolfe")

    def mean_squared_error(data: list[tuple[float, list[ragged.Tensor]]]) -> eg.Tensor:
        states = eg.tensor([state for state, _ in data], dtype=eg.float64)
        estimate = eg.zeros_like(states)
        for number, weights in enumerate(filters):
            readings = ragged.batch([measured[number] for _, measured in data])
            estimate = estimate + ragged.inner(readings, weights)
        return ((estimate - states) ** 2).mean()

    known = [second(rng) for _ in range(seconds)]

    def closure() -> eg.Tensor:
        optimizer.zero_grad()
        loss = mean_squared_error(known)
        loss.backward()
        return loss

    optimizer.step(closure)
    error = mean_squared_error([second(rng) for _ in range(seconds)])
    return [f.detach() for f in filters], error.item() ** 0.5


def pyramid_of(seconds: int) -> ragged.Tensor:
    """Readings of all sensors stacked by the second, seconds stacked by the pair."""
    rng = np.random.default_rng(1)
    pyramid = ragged.Pyramid(2, 1)
    sensors = ragged.Window(len(RATES))
    tops = []
    for _ in range(seconds):
        for reading in second(rng)[1]:
            made = sensors.push(reading)
            top = None if made is None else pyramid.push(made)
            tops += [] if top is None else [top]
    return ragged.stack(tops + pyramid.flush())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=400)
    filters, error = learn(parser.parse_args().seconds)
    weights = [ragged.sum(f).item() for f in filters]
    print("share of each sensor", [round(w, 2) for w in weights])
    print(f"error {error:.3f}; the best sensor alone has {NOISE[0] / np.sqrt(RATES[0]):.3f}")
    print("four seconds, by the pair:", tuple(pyramid_of(4).shape))
    assert weights[0] == max(weights) and abs(sum(weights) - 1) < 0.01


if __name__ == "__main__":
    main()
