"""Learn an unknown impulse response from signals of different lengths.

    python examples/adaptive_filter.py [--steps 200]

A room answers a signal with its convolution with an impulse response. From pairs of signals and
answers the response is found by gradient descent on the error of a convolution; no signal is padded
to the length of another, and the estimate may be longer than the truth: its rest becomes zero.
"""

from __future__ import annotations

import argparse

import numpy as np

import evergrad as eg
from evergrad import optim, ragged

TRUTH = [1.0, 0.6, -0.3, 0.0, 0.15]


def answers(rng: np.random.Generator, count: int) -> tuple[ragged.Batch, ragged.Batch]:
    """Signals of 20 to 400 samples, and what comes back, with a little noise."""
    signals = ragged.batch([rng.standard_normal(rng.integers(20, 400)) for _ in range(count)])
    heard = ragged.convolve(signals, ragged.tensor(TRUTH, eg.float64))
    noise = 0.01 * rng.standard_normal(heard.numel())
    return signals, heard + heard.rebuilt(eg.tensor(noise))


def learn(steps: int = 200, taps: int = 8) -> tuple[ragged.Tensor, float]:
    """The estimated response and the last mean squared error."""
    rng = np.random.default_rng(0)
    response = ragged.tensor(np.zeros(taps), requires_grad=True)
    optimizer = optim.Adam([response.dense], lr=0.05)
    loss = eg.zeros(())
    for _ in range(steps):
        signals, heard = answers(rng, 8)
        error = ragged.convolve(signals, response) - heard
        loss = ragged.inner(error, error).sum() / error.numel()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return response.detach(), loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    found, loss = learn(parser.parse_args().steps)
    print("truth    ", TRUTH)
    print("estimate ", [round(x, 3) for x in found.tolist()])
    print(f"mean squared error {loss:.2e} (the noise has 1.0e-04)")
    assert ragged.allclose(found, ragged.tensor(TRUTH, eg.float64), atol=0.02)


if __name__ == "__main__":
    main()
