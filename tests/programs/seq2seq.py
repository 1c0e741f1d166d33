"""GRU encoder and decoder with additive attention, on packed sequences of different lengths."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD, START, SYMBOLS = 0, 1, 10


class Encoder(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width, padding_idx=PAD)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.join = nn.Linear(2 * width, width)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        outputs, last = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)
        return self.join(outputs), torch.tanh(self.join(torch.cat(last.unbind(0), dim=1)))


class Decoder(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width, max_norm=2.0)
        self.cell = nn.GRUCell(2 * width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1)
        self.head = nn.Linear(width, SYMBOLS)

    def attend(self, state, memory, ignored):
        scores = self.score(torch.tanh(self.query(state).unsqueeze(1) + self.key(memory)))
        weights = scores.squeeze(2).masked_fill(ignored, -torch.inf).softmax(dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)

    def forward(self, token, state, memory, ignored):
        context = self.attend(state, memory, ignored)
        state = self.cell(torch.hstack([self.embedding(token), context]), state)
        return self.head(state), state


def make_batch(size=8, longest=6):
    """Sequences and the same sorted."""
    lengths = torch.randint(2, longest + 1, (size,))
    sources = [torch.randint(2, SYMBOLS, (n,)) for n in lengths.tolist()]
    targets = [source.sort().values for source in sources]
    return pad_sequence(sources, batch_first=True), pad_sequence(targets, batch_first=True), lengths


def loss_of(encoder, decoder, source, target, lengths, teacher_forcing):
    memory, state = encoder(source, lengths)
    ignored = source == PAD
    token = torch.full_like(target[:, 0], START)
    loss = 0
    for correct in target.unbind(dim=1):
        logits, state = decoder(token, state, memory, ignored)
        loss = loss + F.cross_entropy(logits, correct, ignore_index=PAD, reduction="sum")
        token = correct if random.random() < teacher_forcing else logits.detach().argmax(dim=1)
    return loss / lengths.sum()


def train(steps=10):
    torch.manual_seed(22)
    random.seed(22)
    encoder, decoder = Encoder(), Decoder()
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.5, momentum=0.5)
    optimizer.add_param_group({"params": decoder.parameters(), "lr": 0.3})
    milestones = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[4, 8], gamma=0.5)
    losses = []
    for _ in range(steps):
        source, target, lengths = make_batch()
        loss = loss_of(encoder, decoder, source, target, lengths, teacher_forcing=0.7)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*encoder.parameters(), *decoder.parameters()], 1.0)
        optimizer.step()
        milestones.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
