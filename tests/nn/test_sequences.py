"""Sequences of different lengths: padding, packing, and back."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import evergrad
from twins import agree, refuse

LENGTHS = (3, 5, 2)


def sequences(ns: Any, lengths: Any = LENGTHS) -> list[Any]:
    return [
        (ns.arange(2.0 * n, dtype=ns.float64).reshape(n, 2) + 10 * i).requires_grad_()
        for i, n in enumerate(lengths)
    ]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding(batch_first: bool, side: str, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        parts = sequences(ns)
        padded = ns.nn.utils.rnn.pad_sequence(parts, batch_first, -1.0, side)
        (padded * padded).sum().backward()
        return padded, [p.grad for p in parts]

    agree(program, torch)


@pytest.mark.parametrize("batch_first", [False, True])
def test_packing_and_back(batch_first: bool, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        rnn = ns.nn.utils.rnn
        parts = sequences(ns)
        padded = rnn.pad_sequence(parts, batch_first)
        packed = rnn.pack_padded_sequence(
            padded, ns.tensor(LENGTHS), batch_first, enforce_sorted=False
        )
        back, lengths = rnn.pad_packed_sequence(packed, batch_first, 7.0, total_length=6)
        (back * back).sum().backward()
        return list(packed), back, lengths, [p.grad for p in parts]

    agree(program, torch)


def test_packing_sequences(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        rnn = ns.nn.utils.rnn
        ordered = rnn.pack_sequence(sequences(ns, (5, 3, 3, 1)))
        mixed = rnn.pack_sequence(sequences(ns), enforce_sorted=False)
        padded = rnn.pad_sequence(sequences(ns))
        return (
            list(ordered), list(mixed), rnn.unpack_sequence(mixed),
            rnn.unpad_sequence(padded, ns.tensor(LENGTHS)),
            rnn.invert_permutation(ns.tensor([2, 0, 1])), mixed.float().data,
        )  # fmt: skip

    agree(program, torch)


@pytest.mark.parametrize(
    "act",
    [
        lambda ns, r, x: r.pack_padded_sequence(x, [3, 5, 2]),
        lambda ns, r, x: r.pack_padded_sequence(x, [5, 3]),
        lambda ns, r, x: r.pack_padded_sequence(x, [5, 3, 0]),
        lambda ns, r, x: r.pad_packed_sequence(
            r.pack_padded_sequence(x, [5, 3, 2]), total_length=2
        ),
        lambda ns, r, x: r.pack_sequence([x[:2], x]),
        lambda ns, r, x: r.pad_sequence([]),
        lambda ns, r, x: r.pad_sequence([ns.tensor(1.0)]),
        lambda ns, r, x: r.pad_sequence([x, x[:2]], padding_side="top"),
        lambda ns, r, x: ns.nn.LSTM(0, 4),
        lambda ns, r, x: ns.nn.LazyConv2d(3, 2)(x[0]),
        lambda ns, r, x: attention(ns, x, x, x[:4]),
        lambda ns, r, x: attention(ns, x, x[:, :2], x),
        lambda ns, r, x: attention(ns, x[0], x, x),
        lambda ns, r, x: attention(ns, x[0, 0], x, x),
        lambda ns, r, x: attention(ns, x, x, x, key_padding_mask=ns.zeros(1, 5)),
        lambda ns, r, x: attention(ns, x, x, x, key_padding_mask=ns.zeros(3, 4)),
        lambda ns, r, x: attention(ns, x, x, x, attn_mask=ns.zeros(5, 1)),
        lambda ns, r, x: attention(ns, x, x, x, attn_mask=ns.zeros(1, 5, 5)),
        lambda ns, r, x: ns.nn.LSTM(3, 4)(x),
        lambda ns, r, x: ns.nn.LSTM(2, 4)(x, (ns.zeros(1, 9, 4), ns.zeros(1, 3, 4))),
        lambda ns, r, x: ns.nn.GRU(2, 4)(x, ns.zeros(2, 3, 4)),
        lambda ns, r, x: ns.nn.RNN(2, 4)(x[0, 0]),
        lambda ns, r, x: ns.nn.GRU(2, 4)(x[:0]),
        lambda ns, r, x: ns.nn.RNN(2, 4, nonlinearity="other"),
        lambda ns, r, x: ns.nn.LSTM(2, 0),
        lambda ns, r, x: ns.nn.LSTM(2, 4, num_layers=0),
        lambda ns, r, x: ns.nn.LSTM(2, 4, proj_size=4),
        lambda ns, r, x: ns.nn.GRU(2, 4, proj_size=2),
        lambda ns, r, x: ns.nn.LSTM(2, 4, num_layers=2, dropout=1.5),
    ],
)
def test_mistakes_are_refused(act: Any, torch: ModuleType) -> None:
    refuse(lambda ns: act(ns, ns.nn.utils.rnn, ns.ones(5, 3, 2)), torch)


def attention(ns: Any, *inputs: Any, **masks: Any) -> Any:
    return ns.nn.MultiheadAttention(2, 1)(*inputs, **masks)


def test_a_length_beyond_the_padded_batch_is_refused() -> None:
    """PyTorch packs what lies behind the sequence."""
    with pytest.raises(RuntimeError, match="at most that of the padded batch, 5"):
        evergrad.nn.utils.rnn.pack_padded_sequence(evergrad.ones(5, 2, 1), [6, 2])
