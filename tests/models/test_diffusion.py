"""Diffusion: samplers with exact predictions, what is learned, and the DiT."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import evergrad as eg
from evergrad import nn
from evergrad.models import DDPM, DiT, DiTConfig, Flow
from evergrad.models.dit import places, waves

from .tiny import DIT

SHAPE = (3, 4, 4)


class Known(nn.Module):
    """A model that predicts by a formula, and notes when it was asked."""

    shape = SHAPE
    no_class = 3

    def __init__(self, formula: Callable[..., Any]) -> None:
        super().__init__()
        self.formula = formula
        self.times: list[float] = []

    def forward(self, x: Any, time: Any, labels: Any) -> Any:
        assert time.shape == labels.shape == (len(x),)
        self.times.append(time[0].item())
        return self.formula(x, time.view(-1, 1, 1, 1), labels)


def generator(seed: int = 0) -> Any:
    return eg.Generator().manual_seed(seed)


def noise(count: int, seed: int = 0) -> Any:
    """What a sampler begins with."""
    return eg.randn(count, *SHAPE, generator=generator(seed))


DATA = eg.rand(2, *SHAPE, generator=generator(7)) * 2 - 1


# -- flow -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 7])
def test_euler_is_exact_on_straight_lines(steps: int) -> None:
    """All lines lead to one picture: from x at time t the velocity is (picture - x) / (1 - t)."""
    model = Known(lambda x, time, _: (DATA - x) / (1 - time))
    found = Flow().sample(model, 2, [0, 1], steps=steps, sampler="euler", generator=generator())
    np.testing.assert_allclose(found.numpy(), DATA.numpy(), atol=2e-6)
    np.testing.assert_allclose(model.times, np.arange(steps) / steps, rtol=1e-6)


def test_euler_is_of_first_order_on_a_curve() -> None:
    """dx/dt = -x ends at x / e; Euler at x (1 - 1/n)^n."""
    model = Known(lambda x, time, _: -x)
    for steps in (1, 10, 100):
        found = Flow().sample(model, 2, [0, 1], steps=steps, generator=generator())
        expected = noise(2).numpy() * (1 - 1 / steps) ** steps
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_flow_is_trained_on_velocities() -> None:
    """A model that knows the pictures has no loss; one that says 0 the mean square of them."""
    images = eg.rand(500, *SHAPE, generator=generator(1)) * 2 - 1
    labels = eg.zeros(500, dtype=eg.int64)
    known = Known(lambda x, time, _: (images - x) / (1 - time))
    assert Flow().loss(known, images, labels, generator()).item() < 1e-6
    zero = Known(lambda x, time, _: eg.zeros_like(x))
    expected = 1 + images.square().mean().item()
    assert Flow().loss(zero, images, labels, generator()).item() == pytest.approx(
        expected, rel=0.03
    )


# -- noise step by step ---------------------------------------------------------------------------


def exact_noise(process: DDPM, picture: Any) -> Known:
    """The noise in x at a time, if the picture in it is this one."""

    def formula(x: Any, time: Any, labels: Any) -> Any:
        kept = process.kept[(time * process.noise_steps).round().long()]
        return (x - kept.sqrt() * picture) / (1 - kept).sqrt()

    return Known(formula)


@pytest.mark.parametrize("sampler", ["ddim", "ddpm"])
@pytest.mark.parametrize("steps", [1, 10, 50])
def test_exact_noise_leads_to_the_data(sampler: str, steps: int) -> None:
    process = DDPM(noise_steps=100)
    model = exact_noise(process, DATA)
    found = process.sample(model, 2, [0, 1], steps, sampler, generator())
    np.testing.assert_allclose(found.numpy(), DATA.numpy(), atol=2e-4)
    expected = [(steps - i) * 100 // steps - 1 for i in range(steps)]
    np.testing.assert_allclose(np.array(model.times) * 100, expected, atol=1e-3)


def test_ddim_keeps_the_noise_it_began_with() -> None:
    """On the way x is sqrt(kept) * picture + sqrt(1 - kept) * noise with the noise of the start."""
    process = DDPM(noise_steps=100)
    seen: list[Any] = []
    exact = exact_noise(process, DATA)

    def formula(x: Any, time: Any, labels: Any) -> Any:
        seen.append(x)
        return exact.formula(x, time, labels)

    process.sample(Known(formula), 2, [0, 1], 4, "ddim", generator())
    first = exact.formula(seen[0], eg.full((2, 1, 1, 1), 0.99), None)
    for x, time in zip(seen[1:], (74, 49, 24), strict=True):
        kept = process.kept[time]
        expected = kept.sqrt() * DATA + (1 - kept).sqrt() * first
        np.testing.assert_allclose(x.numpy(), expected.numpy(), atol=1e-4)


def test_ddpm_draws_new_noise_and_as_much_as_there_should_be() -> None:
    """On the way the noise in x has variance 1 and less and less to do with that of the start."""
    process = DDPM(noise_steps=100)
    seen: list[Any] = []
    exact = exact_noise(process, DATA[:1])

    def formula(x: Any, time: Any, labels: Any) -> Any:
        seen.append(exact.formula(x, time, labels))
        return seen[-1]

    process.sample(Known(formula), 400, [0] * 400, 10, "ddpm", generator())
    first = seen[0].numpy()
    likeness = [np.mean(first * each.numpy()) for each in seen]
    for each in seen:
        assert each.square().mean().item() == pytest.approx(1, abs=0.05)
    assert all(later < earlier + 0.02 for earlier, later in pairwise(likeness))
    assert likeness[-1] < 0.3


def test_schedule_is_that_of_the_paper() -> None:
    kept = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    np.testing.assert_allclose(DDPM().kept.numpy(), kept, rtol=1e-6)
    # Fewer steps end with as little of the picture.
    assert DDPM(noise_steps=100).kept[-1].item() == pytest.approx(kept[-1], rel=0.5)


def test_ddpm_is_trained_on_noise() -> None:
    process = DDPM()
    images = eg.rand(500, *SHAPE, generator=generator(1)) * 2 - 1
    labels = eg.zeros(500, dtype=eg.int64)
    known = exact_noise(process, images)
    assert process.loss(known, images, labels, generator()).item() < 1e-4
    zero = Known(lambda x, time, _: eg.zeros_like(x))
    assert process.loss(zero, images, labels, generator()).item() == pytest.approx(1, rel=0.03)


# -- labels, guidance, seeds ----------------------------------------------------------------------


def test_a_part_of_the_labels_is_hidden() -> None:
    seen: list[Any] = []
    model = Known(lambda x, time, labels: seen.append(labels) or x)
    images, labels = eg.zeros(2000, *SHAPE), eg.arange(2000) % 3
    Flow(unlabelled=0.25).loss(model, images, labels, generator())
    hidden = seen[0] == 3
    assert eg.equal(seen[0][~hidden], labels[~hidden])
    assert hidden.float().mean().item() == pytest.approx(0.25, abs=0.04)
    Flow(unlabelled=0).loss(model, images, labels, generator())
    assert eg.equal(seen[1], labels)


def test_guidance_exaggerates_the_class() -> None:
    model = Known(lambda x, time, labels: labels.view(-1, 1, 1, 1) - eg.zeros_like(x))
    for guidance in (0.0, 1.0, 3.0):
        found = Flow().sample(model, 2, [0, 1], steps=2, generator=generator(), guidance=guidance)
        moved = (found - noise(2)).mean((1, 2, 3)).numpy()
        expected = 3 + guidance * (np.array([0, 1]) - 3)  # no_class is 3
        np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("process", [Flow(), DDPM(50)], ids=["flow", "ddpm"])
def test_seeds_reproduce(process: Any) -> None:
    eg.manual_seed(0)
    model = DiT(DIT)
    with eg.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.1)
    for sampler in process.samplers:
        a, b, c = (
            process.sample(model, 3, [0, 1, 2], 4, sampler, generator(seed)) for seed in (1, 1, 2)
        )
        assert a.shape == (3, *SHAPE) and bool(a.isfinite().all())
        assert eg.equal(a, b) and not eg.equal(a, c)
    assert not a.requires_grad and model.training
    compiled = process.sample(eg.compile(model), 3, [0, 1, 2], 4, sampler, generator(2))
    np.testing.assert_allclose(compiled.numpy(), c.numpy(), rtol=1e-3, atol=1e-4)


def test_bad_arguments() -> None:
    model = DiT(DIT)
    with pytest.raises(ValueError, match="Flow has no sampler 'eulr'; did you mean 'euler'"):
        Flow().sample(model, 2, [0, 1], sampler="eulr")
    with pytest.raises(ValueError, match=r"shape \(3,\) for 2 pictures"):
        Flow().sample(model, 2, [0, 1, 2])
    with pytest.raises(ValueError, match=r"60 steps are more .*\(50\)"):
        DDPM(50).sample(model, 1, [0], steps=60)
    with pytest.raises(ValueError, match="steps is 0"):
        Flow().sample(model, 1, [0], steps=0)
    with pytest.raises(ValueError, match="unlabelled is 2"):
        Flow(unlabelled=2)


# -- the DiT --------------------------------------------------------------------------------------


def test_a_new_dit_predicts_zero_and_its_blocks_are_the_identity() -> None:
    eg.manual_seed(0)
    model = DiT(DIT)
    x, time, labels = eg.randn(2, *SHAPE), eg.rand(2), eg.tensor([0, 2])
    assert not model(x, time, labels).any()
    tokens = eg.randn(2, 4, 16)
    assert eg.equal(model.blocks[0](tokens, eg.randn(2, 16)), tokens)


def test_patches_come_back_to_their_place() -> None:
    """What stands in the features of one patch moves the pixels of that patch alone."""
    model = DiT(DiTConfig(size=6, channels=2, patch=3, layers=1, heads=1, width=4))
    features = eg.zeros(1, 4, 2 * 9)
    features[0, 1] = eg.arange(18.0) + 1  # the upper right of 2 by 2 patches
    picture = model.unpatchify(features)[0]
    assert picture.shape == (2, 6, 6)
    expected = np.arange(1.0, 19).reshape(2, 3, 3)
    np.testing.assert_array_equal(picture[:, :3, 3:].numpy(), expected)
    assert picture.count_nonzero().item() == 18


def test_time_and_class_are_told() -> None:
    eg.manual_seed(0)
    model = DiT(DIT)
    with eg.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2)
    x = eg.randn(1, *SHAPE)
    base = model(x, eg.tensor([0.5]), eg.tensor([0]))
    assert (model(x, eg.tensor([0.6]), eg.tensor([0])) - base).abs().max().item() > 1e-3
    assert (model(x, eg.tensor([0.5]), eg.tensor([1])) - base).abs().max().item() > 1e-3


def test_waves_tell_times_and_places_apart() -> None:
    found = waves(eg.tensor([0.0, 2.0]), 4).numpy()
    expected = [[1, 1, 0, 0], [np.cos(2), np.cos(0.02), np.sin(2), np.sin(0.02)]]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    each = places(3, 8).numpy()  # (9, 8), row by row
    np.testing.assert_array_equal(each[0:3, :4], each[[0, 0, 0], :4])  # the same row
    np.testing.assert_array_equal(each[[0, 3, 6], 4:], each[[0, 0, 0], 4:])  # the same column
    assert len(np.unique(each, axis=0)) == 9
