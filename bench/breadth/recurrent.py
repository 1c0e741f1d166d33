"""Sequences through time: recurrent layers, cells in loops, packed lengths, CTC."""

from __future__ import annotations

from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


@workload()
def seq2seq_gru(torch: Any) -> Work:
    """An encoder and a decoder with attention, one step of the decoder at a time."""
    nn, F = torch.nn, torch.nn.functional
    width, vocabulary = 64, 200
    embed = nn.Embedding(vocabulary, width)
    encoder = nn.GRU(width, width, batch_first=True)
    cell, head = nn.GRUCell(2 * width, width), nn.Linear(2 * width, vocabulary)
    modules = nn.ModuleList([embed, encoder, cell, head])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)
    data = Data(torch)

    def loss(source: Any, target: Any) -> Any:
        memory, last = encoder(embed(source))
        h, context = last[0], torch.zeros_like(last[0])
        total = 0.0
        for t in range(target.shape[1] - 1):
            h = cell(torch.cat([embed(target[:, t]), context], -1), h)
            weights = torch.bmm(memory, h.unsqueeze(-1)).squeeze(-1).softmax(-1)
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            total = total + F.cross_entropy(head(torch.cat([h, context], -1)), target[:, t + 1])
        return total / (target.shape[1] - 1)

    batch = data.integers(vocabulary, 16, 20), data.integers(vocabulary, 16, 12)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def lstm_packed(torch: Any) -> Work:
    nn, F = torch.nn, torch.nn.functional
    rnn = nn.utils.rnn
    embed, layer = nn.Embedding(100, 48), nn.LSTM(48, 64, batch_first=True)
    head = nn.Linear(64, 2)
    modules = nn.ModuleList([embed, layer, head])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)
    data = Data(torch)
    lengths = torch.tensor([30, 28, 21, 17, 16, 9, 5, 3])

    def loss(tokens: Any, targets: Any) -> Any:
        packed = rnn.pack_padded_sequence(embed(tokens), lengths, batch_first=True)
        _, (h, _) = layer(packed)
        return F.cross_entropy(head(h[-1]), targets)

    batch = data.integers(100, 8, 30), data.integers(2, 8)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def lstm_bidirectional(torch: Any) -> Work:
    """A tagger with two layers and a reversed direction."""
    nn, F = torch.nn, torch.nn.functional
    layer = nn.LSTM(32, 48, num_layers=2, bidirectional=True)
    head = nn.Linear(96, 9)
    parameters = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.Adagrad(parameters, lr=1e-2)
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        out, _ = layer(x)
        return F.cross_entropy(head(out).reshape(-1, 9), y.reshape(-1))

    batch = data.normal(40, 16, 32), data.integers(9, 40, 16)
    step = spellings.clipped(torch, parameters, optimizer, loss)
    return Work(step, (batch,))


@workload()
def char_rnn_cells(torch: Any) -> Work:
    """The recurrence written out with a cell and a Python list."""
    nn, F = torch.nn, torch.nn.functional
    cell, head = nn.LSTMCell(40, 64), nn.Linear(64, 40)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    data = Data(torch)

    def loss(text: Any) -> Any:
        h, c = torch.zeros(text.shape[0], 64), torch.zeros(text.shape[0], 64)
        outs = []
        for t in range(text.shape[1] - 1):
            h, c = cell(F.one_hot(text[:, t], 40).float(), (h, c))
            outs.append(head(h))
        return F.cross_entropy(torch.stack(outs, 1).flatten(0, 1), text[:, 1:].flatten())

    return Work(spellings.zero_first(optimizer, loss), ((data.integers(40, 16, 25),),))


@workload()
def speech_ctc(torch: Any) -> Work:
    nn, F = torch.nn, torch.nn.functional
    conv, layer = nn.Conv1d(40, 48, 5, stride=2, padding=2), nn.GRU(48, 48, bidirectional=True)
    head = nn.Linear(96, 30)
    modules = nn.ModuleList([conv, layer, head])
    optimizer = torch.optim.AdamW(modules.parameters(), lr=1e-3)
    data = Data(torch)
    frames, letters = torch.tensor([50, 45, 40, 30]), torch.tensor([10, 9, 8, 6])

    def loss(x: Any, y: Any) -> Any:
        h = F.relu(conv(x)).permute(2, 0, 1)  # (T, B, C)
        scores = F.log_softmax(head(layer(h)[0]), dim=-1)
        return F.ctc_loss(scores, y, frames, letters)

    batch = data.normal(4, 40, 100), data.integers(30, 4, 10, low=1)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def wavenet(torch: Any) -> Work:
    """Causal dilated convolutions with gates and skips."""
    nn, F = torch.nn, torch.nn.functional
    channels = 24
    first = nn.Conv1d(1, channels, 1)
    gates = nn.ModuleList([nn.Conv1d(channels, 2 * channels, 2, dilation=2**i) for i in range(5)])
    skips = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in range(5)])
    last = nn.Conv1d(channels, 1, 1)
    modules = nn.ModuleList([first, gates, skips, last])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)

    def loss(x: Any) -> Any:
        h, total = first(x[:, :, :-1]), 0.0
        for i, (gate, skip) in enumerate(zip(gates, skips, strict=True)):
            a, b = gate(F.pad(h, (2**i, 0))).chunk(2, 1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            h, total = h + y, total + y
        return F.smooth_l1_loss(last(F.relu(total)), x[:, :, 1:])

    return Work(spellings.zero_first(optimizer, loss), ((Data(torch).normal(4, 1, 513),),))


@workload()
def state_space(torch: Any) -> Work:
    """A diagonal linear recurrence in a Python loop with in-place results."""
    decay = torch.linspace(0.5, 0.99, 32).requires_grad_()
    mix = (torch.randn(32, 16) / 4).requires_grad_()
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        drive, state = x @ mix.t(), torch.zeros(x.shape[0], 32)
        total = torch.zeros(())
        for t in range(x.shape[1]):
            state = torch.addcmul(drive[:, t], state, decay)
            total = total + (state.mean(-1) - y[:, t]).abs().mean()
        return total

    batch = data.normal(8, 40, 16), data.normal(8, 40)
    return Work(spellings.by_hand(torch, [decay, mix], loss, 1e-3), (batch,))
