"""A transformer with encoder and decoder translates number sequences into their reversal."""

import math

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence

PAD, BEGIN, END = 0, 1, 2
VOCABULARY, WIDTH = 12, 16


class Positions(nn.Module):
    """Adds sines and cosines of the position."""

    def __init__(self, longest=32, dropout=0.1):
        super().__init__()
        position = torch.arange(longest).unsqueeze(1)
        rate = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
        table = torch.zeros(longest, 1, WIDTH)
        table[:, 0, 0::2] = torch.sin(position * rate)
        table[:, 0, 1::2] = torch.cos(position * rate)
        self.register_buffer("table", table, persistent=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(x + self.table[: x.size(0)])


class Reverser(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD)
        self.positions = Positions()
        self.transformer = nn.Transformer(
            d_model=WIDTH,
            nhead=2,
            num_encoder_layers=2,
            num_decoder_layers=1,
            dim_feedforward=32,
            dropout=0.1,
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def embed(self, tokens):
        return self.positions(self.embedding(tokens) * math.sqrt(WIDTH))

    def forward(self, source, target):
        ignored, ignored_target = source.eq(PAD).t(), target.eq(PAD).t()
        future = torch.ones(len(target), len(target), dtype=torch.bool).triu(diagonal=1)
        x = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=ignored,
            tgt_key_padding_mask=ignored_target,
            memory_key_padding_mask=ignored,
        )
        return self.head(x)

    @torch.no_grad()
    def translate(self, source, length):
        """The likeliest token at each place, one after the other."""
        self.eval()
        memory = self.transformer.encoder(self.embed(source))
        tokens = source.new_full((1, 1), BEGIN)
        for _ in range(length):
            mask = nn.Transformer.generate_square_subsequent_mask(len(tokens))
            x = self.transformer.decoder(self.embed(tokens), memory, tgt_mask=mask)
            likeliest = self.head(x[-1]).max(dim=1).indices
            tokens = torch.cat([tokens, likeliest.unsqueeze(0)], dim=0)
        return tokens.flatten().tolist()


def make_batch(size, longest=6):
    """Sequences of different lengths and the same backwards: both (T, B), padded."""
    begin, end = torch.tensor([BEGIN]), torch.tensor([END])
    sources, targets = [], []
    for _ in range(size):
        length = int(torch.randint(3, longest + 1, ()))
        tokens = torch.randint(3, VOCABULARY, (length,))
        sources.append(torch.cat((begin, tokens, end)))
        targets.append(torch.cat((begin, tokens.flip(0), end)))
    return pad_sequence(sources, padding_value=PAD), pad_sequence(targets, padding_value=PAD)


def train(steps=10, warmup=5):
    torch.manual_seed(6)
    model = Reverser()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.9, 0.98), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)
    )
    losses = []
    for _ in range(steps):
        source, target = make_batch(8)
        logits = model(source, target[:-1])
        loss = criterion(logits.reshape(-1, VOCABULARY), target[1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    source = torch.tensor([BEGIN, 5, 7, 3, END]).view(-1, 1)
    return losses + [float(token) for token in model.translate(source, 6)]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
