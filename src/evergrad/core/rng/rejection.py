"""Rejection sampling: Poisson, binomial and gamma, one number at a time."""

from __future__ import annotations

import math

import numpy as np

from evergrad.core.exact import c_log
from evergrad.core.rng.bit_generators import Scalars


def sample_poisson(rate: float, random: Scalars) -> float:
    """Products of uniforms below 10, Hörmann's transformed rejection PTRS from there on."""
    if rate == 0.0:
        return 0.0
    if rate < 10.0:
        limit, product, count = math.exp(-rate), random.uniform(), 0
        while product > limit:
            product *= random.uniform()
            count += 1
        return float(count)
    root, log_rate = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    accept = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u, v = random.uniform() - 0.5, random.uniform()
        margin = 0.5 - abs(u)
        if margin == 0.0:
            continue
        k = math.floor((2.0 * a / margin + b) * u + rate + 0.43)
        if margin >= 0.07 and v <= accept:
            return float(k)
        if k < 0 or (margin < 0.013 and v > margin):
            continue
        score = c_log(v) + math.log(inverse_alpha) - math.log(a / (margin * margin) + b)
        if score <= -rate + k * log_rate - math.lgamma(k + 1):
            return float(k)


_STIRLING_TAIL = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def _stirling_tail(k: float) -> float:
    """What Stirling's formula leaves out of log(k!)."""
    if k <= 9:
        return _STIRLING_TAIL[int(k)]
    square = (k + 1.0) * (k + 1.0)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0)


def sample_binomial(count: float, prob: float, random: Scalars) -> float:
    """Geometric gaps for a small mean, Hörmann's transformed rejection BTRS for a large one."""
    if count <= 0.0 or prob <= 0.0:
        return 0.0
    if prob >= 1.0:
        return count
    if prob > 0.5:
        return count - sample_binomial(count, 1.0 - prob, random)
    if math.isnan(count) or math.isnan(prob):
        return math.nan
    if count * prob >= 10.0:
        return _binomial_btrs(count, prob, random)
    total, successes, log_miss = 0.0, 0, math.log1p(-prob)
    while True:
        gap = c_log(random.uniform()) / log_miss
        total += math.ceil(gap) if gap < math.inf else gap
        if total > count:
            return float(successes)
        successes += 1


def _binomial_btrs(count: float, prob: float, random: Scalars) -> float:
    spread = math.sqrt(count * prob * (1.0 - prob))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    c = count * prob + 0.5
    accept = 0.92 - 4.2 / b
    odds = prob / (1.0 - prob)
    alpha = (2.83 + 5.1 / b) * spread
    mode = math.floor((count + 1.0) * prob)
    while True:
        u, v = random.uniform() - 0.5, random.uniform()
        margin = 0.5 - abs(u)
        if margin == 0.0:
            continue
        k = math.floor((2.0 * a / margin + b) * u + c)
        if margin >= 0.07 and v <= accept:
            return float(k)
        if k < 0 or k > count:
            continue
        score = c_log(v * alpha / (a / (margin * margin) + b))
        bound = (
            (mode + 0.5) * math.log((mode + 1.0) / (odds * (count - mode + 1.0)))
            + (count + 1.0) * math.log((count - mode + 1.0) / (count - k + 1.0))
            + (k + 0.5) * math.log(odds * (count - k + 1.0) / (k + 1.0))
            + _stirling_tail(mode)
            + _stirling_tail(count - mode)
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        if score <= bound:
            return float(k)


def sample_standard_gamma(alpha: float, random: Scalars) -> float:
    """Marsaglia and Tsang's method; shapes below 1 are boosted from alpha + 1."""
    scale = 1.0
    if alpha < 1.0:
        if alpha == 0.0:
            return 0.0
        scale = math.pow(1.0 - random.uniform(), 1.0 / alpha)
        alpha += 1.0
    d = alpha - float(np.float32(1.0 / 3.0))
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = random.normal()
        y = 1.0 + c * x
        if y <= 0.0:
            continue
        v = y * y * y
        u = 1.0 - random.uniform()
        square = x * x
        if u < 1.0 - 0.0331 * square * square:
            return scale * d * v
        if math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v
