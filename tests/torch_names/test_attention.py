"""Attention by functions of places, and attention as one function of its weights."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad.nn.attention.flex_attention import create_block_mask, flex_attention
from twins import agree, refuse

SHAPE = (2, 4, 10, 8)  # batch, heads, places, width


def flex(ns: Any) -> Any:
    return import_module(f"{ns.__name__}.nn.attention.flex_attention")


def inputs(ns: Any, kv_heads: int = 4) -> list[Any]:
    generator = np.random.default_rng(0)
    query, key, value = (generator.standard_normal(SHAPE) for _ in range(3))
    return [ns.tensor(a) for a in (query, key[:, :kv_heads], value[:, :kv_heads])]


def causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def sliding(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q - kv < 3


def same_document(ns: Any) -> Any:
    document = ns.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    return lambda b, h, q, kv: (document[q] == document[kv]) & (q > kv)


def alibi(ns: Any) -> Any:
    slopes = ns.tensor([0.5, 0.25, 0.125, 0.0625], dtype=ns.float64)
    return lambda score, b, h, q, kv: score + slopes[h] * (kv - q)


def masked(ns: Any, mod: Any, places: int = 7) -> Any:
    return flex(ns).create_block_mask(mod, None, None, places, places, "cpu", BLOCK_SIZE=4)


SETTINGS: dict[str, Any] = {
    "nothing": lambda ns: {},
    "scale": lambda ns: {"scale": 0.3},
    "relative places": lambda ns: {"score_mod": lambda s, b, h, q, kv: s + (q - kv)},
    "slopes by head": lambda ns: {"score_mod": alibi(ns)},
    "a limit": lambda ns: {"score_mod": lambda s, b, h, q, kv: ns.tanh(s / 5) * 5},
    "causal": lambda ns: {"block_mask": masked(ns, causal)},
    "documents, the first of each hidden": lambda ns: {"block_mask": masked(ns, same_document(ns))},
    "two masks and scores": lambda ns: {
        "block_mask": masked(ns, flex(ns).and_masks(causal, sliding)),
        "score_mod": lambda s, b, h, q, kv: s * (h + 1) + b,
    },
    "one of two masks": lambda ns: {"block_mask": masked(ns, flex(ns).or_masks(causal, sliding))},
    "no mask": lambda ns: {"block_mask": masked(ns, flex(ns).noop_mask)},
}


def by_hand(query: Any, key: Any, value: Any, settings: dict[str, Any]) -> Any:
    """The same, place by place: functions get numbers, as their authors think of them."""
    scale = settings.get("scale", query.shape[-1] ** -0.5)
    scores = np.einsum("bhqe,bhke->bhqk", query, key) * scale
    mask = settings.get("block_mask")
    for place in np.ndindex(scores.shape):
        numbers = [evergrad.tensor(n) for n in place]
        if "score_mod" in settings:
            score = evergrad.tensor(scores[place])
            scores[place] = settings["score_mod"](score, *numbers).item()
        if mask is not None and not mask.mask_mod(*numbers).item():
            scores[place] = -np.inf
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(scores).sum(-1))
    weights = np.exp(scores - np.where(np.isinf(lse), 0, lse)[..., None])
    return np.einsum("bhqk,bhke->bhqe", weights, value), lse


@pytest.mark.parametrize("name", SETTINGS)
def test_flex_attention(name: str) -> None:
    points = [t[:1, :, :7] for t in inputs(evergrad)]
    settings = SETTINGS[name](evergrad)
    result, lse = flex_attention(*points, return_lse=True, **settings)
    expected, expected_lse = by_hand(*[p.numpy() for p in points], settings)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lse.numpy(), expected_lse, rtol=1e-9)


def test_flex_attention_is_that_of_torch(torch: ModuleType) -> None:
    """Once, because PyTorch's takes seconds to start."""

    def program(ns: Any) -> Any:
        settings = SETTINGS["two masks and scores"](ns)
        settings["block_mask"] = masked(ns, flex(ns).and_masks(causal, sliding), places=10)
        request = flex(ns).AuxRequest(lse=True)
        points = inputs(ns, 2)
        result, aux = flex(ns).flex_attention(
            *points, enable_gqa=True, return_aux=request, **settings
        )
        return result, aux.lse, aux.max_scores

    agree(program, torch)


def test_the_largest_scores() -> None:
    query, key, value = inputs(evergrad)
    request = flex(evergrad).AuxRequest(max_scores=True)
    _, aux = flex_attention(query, key, value, scale=1.0, return_aux=request)
    assert aux.lse is None
    evergrad.testing.assert_close(aux.max_scores, (query @ key.mT).amax(-1))


def test_derivatives_are_those_of_dense_attention() -> None:
    """PyTorch has none on the CPU; attention with the same mask has."""
    points = [t.requires_grad_() for t in inputs(evergrad)]
    ours = flex_attention(*points, block_mask=create_block_mask(causal, None, None, 10, 10))
    dense = evergrad.nn.functional.scaled_dot_product_attention(*points, is_causal=True)
    for result in (ours, dense):
        evergrad.testing.assert_close(
            evergrad.autograd.grad(ours.square().sum(), points, retain_graph=True),
            evergrad.autograd.grad(result.square().sum(), points, retain_graph=True),
        )


def test_scores_learn() -> None:
    slope = evergrad.tensor(0.5, dtype=evergrad.float64, requires_grad=True)

    def loss(slope: Any) -> Any:
        return (
            flex_attention(*inputs(evergrad), score_mod=lambda s, b, h, q, kv: s + slope * (kv - q))
            .square()
            .sum()
        )

    assert evergrad.autograd.gradcheck(loss, (slope,))


MASKS = {
    "causal": causal,
    "causal and near": lambda b, h, q, kv: (q - kv < 3) & (q >= kv),
    "nobody": lambda b, h, q, kv: q < 0,
}
LISTS = [
    f"{full}{side}_{what}"
    for full in ("", "full_")
    for side in ("kv", "q")
    for what in ("num_blocks", "indices")
]


@pytest.mark.parametrize("size", [2, 4, (4, 2)])
@pytest.mark.parametrize("name", MASKS)
def test_blocks(name: str, size: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        mask = flex(ns).create_block_mask(
            MASKS[name], B=None, H=2, Q_LEN=10, KV_LEN=12, device="cpu", BLOCK_SIZE=size
        )
        lists = [getattr(mask, n) for n in LISTS]
        kinds = [str(t.dtype).rpartition(".")[2] for t in lists]
        text = repr(mask).replace("torch.", "").replace("evergrad.", "")
        return lists, kinds, mask.shape, mask.sparsity(), mask.to_dense(), mask.numel(), text

    agree(program, torch)


def test_dense_masks(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        create = flex(ns).create_mask
        hide = ns.tensor(-float("inf"))
        return (
            create(causal, 1, 2, 3, 4, device="cpu"),
            create(lambda s, b, h, q, kv: ns.where(q >= kv, s, hide), None, None, 3, 3, "cpu"),
        )

    agree(program, torch)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ns: flex(ns).flex_attention(ns.ones(2, 2), ns.ones(2, 2), ns.ones(2, 2)),
        lambda ns: flex(ns).flex_attention(*inputs(ns, 2)),
        lambda ns: flex(ns).flex_attention(*inputs(ns, 3), enable_gqa=True),
        lambda ns: flex(ns).and_masks(causal, 3),
    ],
)
def test_misuse_is_refused(misuse: Any, torch: ModuleType) -> None:
    refuse(misuse, torch)


def test_mixed_element_types_are_refused() -> None:
    query, key, value = inputs(evergrad)
    with pytest.raises(ValueError, match="same dtype"):
        flex_attention(query, key.float(), value)


def test_a_mask_of_another_length_is_refused() -> None:
    mask = create_block_mask(causal, None, None, 8, 8)
    with pytest.raises(RuntimeError, match="q_len=10"):
        flex_attention(*inputs(evergrad), block_mask=mask)


# -- several heads ------------------------------------------------------------------------------


def heads(ns: Any, **further: Any) -> Any:
    """A call of the function, with weights made of a fixed series."""
    series = ns.linspace(-1, 1, 400, dtype=ns.float64)
    query, key = series[:24].reshape(3, 2, 4), series[40:72].reshape(4, 2, 4)
    weights = {
        "in_proj_weight": series[100:148].reshape(12, 4).sin(),
        "in_proj_bias": series[150:162],
        "bias_k": None,
        "bias_v": None,
        "add_zero_attn": False,
        "dropout_p": 0.0,
        "out_proj_weight": series[170:186].reshape(4, 4),
        "out_proj_bias": series[190:194],
    }
    weights.update({name: value(ns, series) for name, value in further.items()})
    return ns.nn.functional.multi_head_attention_forward(query, key, key, 4, 2, **weights)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "without weights": {"need_weights": lambda ns, s: False},
    "weights by head": {"average_attn_weights": lambda ns, s: False},
    "further keys": {
        "bias_k": lambda ns, s: s[200:204].reshape(1, 1, 4),
        "bias_v": lambda ns, s: s[204:208].reshape(1, 1, 4),
        "add_zero_attn": lambda ns, s: True,
        "attn_mask": lambda ns, s: s[:12].reshape(3, 4),
    },
    "padding": {"key_padding_mask": lambda ns, s: s[:8].reshape(2, 4) > -0.98},
    "own weights": {
        "use_separate_proj_weight": lambda ns, s: True,
        "in_proj_weight": lambda ns, s: None,
        "q_proj_weight": lambda ns, s: s[:16].reshape(4, 4),
        "k_proj_weight": lambda ns, s: s[16:32].reshape(4, 4),
        "v_proj_weight": lambda ns, s: s[32:48].reshape(4, 4),
    },
    "fixed keys": {
        "static_k": lambda ns, s: s[210:250].reshape(4, 5, 2),
        "static_v": lambda ns, s: s[250:290].reshape(4, 5, 2),
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_heads_as_a_function(name: str, torch: ModuleType) -> None:
    agree(lambda ns: heads(ns, **VARIANTS[name]), torch)


def test_a_wrong_width_is_refused(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x, w = ns.ones(2, 1, 4), ns.ones(4, 4)
        return ns.nn.functional.multi_head_attention_forward(
            x, x, x, 6, 2, ns.ones(12, 4), None, None, None, False, 0.0, w, None
        )

    refuse(program, torch)
