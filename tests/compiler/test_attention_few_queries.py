"""Attention of few queries, as in decoding: products instead of the kernels of blocks."""

from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F

from .steps import programs_of

sdpa = F.scaled_dot_product_attention


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def expected(q: Any, k: Any, v: Any, seen: Any) -> Any:
    q, k, v = (np.float64(x) for x in (q, k, v))
    scores = np.where(seen, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights = np.nan_to_num(weights / weights.sum(-1, keepdims=True))
    return weights @ v


@pytest.mark.parametrize("queries", [1, 2, 4, 5])
@pytest.mark.parametrize("keys", [1, 7, 130])
def test_values_and_gradients(queries: int, keys: int) -> None:
    q, k, v = (
        normal(2, 3, queries, 32),
        normal(2, 3, keys, 32, seed=1),
        normal(2, 3, keys, 32, seed=2),
    )
    seen = np.random.default_rng(3).random((2, 1, queries, keys)) > 0.4
    seen[0, 0, 0] = False  # a query that may look nowhere gives zeros
    wanted = expected(q, k, v, seen)
    tensors = [eg.tensor(x, requires_grad=True) for x in (q, k, v)]
    mask = eg.tensor(seen)
    found = sdpa(*tensors, attn_mask=mask)
    np.testing.assert_allclose(found.detach().numpy(), wanted, atol=2e-6)
    with eg.no_grad():
        alone = sdpa(*tensors, attn_mask=mask)
    assert eg.equal(found.detach(), alone), "recording changes no bit"
    compiled = eg.compile(lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask))
    with eg.no_grad():
        np.testing.assert_allclose(compiled(*tensors, mask).numpy(), wanted, atol=2e-6)
    (program,) = programs_of(compiled)
    labels = [instruction.label for instruction in program.instructions]
    assert ("attention" in labels) == (queries > 4)
    if keys > 1:
        assert not [label for label in labels if label.startswith("call")]
    wide = [eg.tensor(np.float64(x), requires_grad=True) for x in (q, k, v)]
    weights = eg.tensor(normal(*wanted.shape, seed=4))
    gradients = eg.autograd.grad((found * weights).sum(), tensors)
    exact = eg.autograd.grad((sdpa(*wide, attn_mask=mask) * weights.double()).sum(), wide)
    for a, b in zip(gradients, exact, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)


def test_heads_that_share_keys_and_masks_of_numbers() -> None:
    q, k, v = normal(2, 8, 1, 16), normal(2, 2, 40, 16, seed=1), normal(2, 2, 40, 16, seed=2)
    found = sdpa(*map(eg.tensor, (q, k, v)), enable_gqa=True).numpy()
    k4, v4 = np.repeat(k, 4, 1), np.repeat(v, 4, 1)
    np.testing.assert_allclose(found, expected(q, k4, v4, True), atol=2e-6)
    bias = np.where(normal(1, 1, 1, 40) > 0, 0.0, -np.inf).astype(np.float32)
    found = sdpa(*map(eg.tensor, (q, k4, v4)), attn_mask=eg.tensor(bias)).numpy()
    np.testing.assert_allclose(found, expected(q, k4, v4, bias == 0), atol=2e-6)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    tensors = [eg.tensor(normal(4, 8, n, 64, seed=n)) for n in (1, 300)]
    before = eg.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            eg.set_num_threads(threads)
            results.append(sdpa(tensors[0], tensors[1], tensors[1]))
    finally:
        eg.set_num_threads(before)
    assert all(eg.equal(result, results[0]) for result in results)
