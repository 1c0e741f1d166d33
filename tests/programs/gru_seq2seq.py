"""A GRU encoder and decoder with attention learns to reverse sequences."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WORDS = 8


class Translator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width, padding_idx=0)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.decoder = nn.GRUCell(2 * width, width)
        self.bridge = nn.Linear(2 * width, width)
        self.attend = nn.Bilinear(width, 2 * width, 1)
        self.leave = nn.Linear(3 * width, WORDS)
        self.squeeze = nn.Linear(2 * width, width)

    def forward(self, source, lengths, target):
        packed = pack_padded_sequence(
            self.embed(source), lengths, batch_first=True, enforce_sorted=False
        )
        memory, last = self.encoder(packed)
        memory, _ = pad_packed_sequence(memory, batch_first=True)
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], -1)))
        outside = source[:, : memory.shape[1]] == 0
        logits = []
        for word in target.unbind(1):
            scores = self.attend(
                state.unsqueeze(1).expand(-1, memory.shape[1], -1).contiguous(), memory
            ).squeeze(-1)
            weights = scores.masked_fill(outside, float("-inf")).softmax(-1)
            context = torch.einsum("bt,btd->bd", weights, memory)
            state = self.decoder(torch.cat([self.embed(word), self.squeeze(context)], -1), state)
            logits.append(self.leave(torch.cat([state, context], -1)))
        return torch.stack(logits, 1)


def train(steps=6):
    torch.manual_seed(8)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        lengths = torch.randint(3, 6, (8,))
        source = torch.randint(1, WORDS, (8, 5))
        source[torch.arange(5) >= lengths.unsqueeze(1)] = 0
        goal = source.flip(1)
        shifted = torch.cat([torch.ones(8, 1, dtype=torch.long), goal[:, :-1]], 1)
        logits = model(source, lengths, shifted)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), goal, ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
