"""A recurrent language model, trained by truncated backpropagation through time."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = "the cat sat on the mat and the rat sat on the cat while the bat ate the fat rat . " * 12
LANES = 4


class WordModel(nn.Module):
    def __init__(self, words, width=16, hidden=24, layers=2, dropout=0.2):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, hidden, layers, dropout=dropout)
        self.head = nn.Linear(hidden, words)
        self.embedding.weight.data.uniform_(-0.1, 0.1)
        self.head.weight.data.uniform_(-0.1, 0.1)
        self.head.bias.data.zero_()

    def start(self, lanes):
        like = self.head.weight
        shape = (self.lstm.num_layers, lanes, self.lstm.hidden_size)
        return like.new_zeros(shape), like.new_zeros(shape)

    def forward(self, tokens, state):
        x = self.dropout(self.embedding(tokens))  # (T, B, width)
        x, state = self.lstm(x, state)
        logits = self.head(self.dropout(x))
        return F.log_softmax(logits, dim=-1), state


def in_lanes(text):
    """The text's words as numbers, read down LANES columns: (T, LANES)."""
    words = text.split()
    vocabulary = sorted(set(words))
    numbers = torch.tensor([vocabulary.index(word) for word in words])
    rows = numbers.size(0) // LANES
    return numbers.narrow(0, 0, rows * LANES).view(LANES, rows).t().contiguous(), len(vocabulary)


@torch.no_grad()
def write_text(model, words=12, temperature=0.8):
    """The sum of the numbers of the words that the model writes."""
    model.eval()
    state = model.start(1)
    token = torch.randint(model.head.out_features, (1, 1), dtype=torch.long)
    total = 0
    for _ in range(words):
        log_probabilities, state = model(token, state)
        weights = log_probabilities.squeeze().div(temperature).exp().cpu()
        token.fill_(torch.multinomial(weights, 1)[0])
        total += token.item()
    return float(total)


def train(steps=20, span=8, lr=2.0):
    torch.manual_seed(5)
    data, words = in_lanes(TEXT)
    model = WordModel(words)
    criterion = nn.NLLLoss()
    state = model.start(LANES)
    losses = []
    for step in range(steps):
        begin = step * span % (len(data) - span - 1)
        inputs, targets = data[begin : begin + span], data[begin + 1 : begin + span + 1]
        model.zero_grad()
        state = tuple(part.detach() for part in state)
        log_probabilities, state = model(inputs, state)
        loss = criterion(log_probabilities.flatten(0, 1), targets.reshape(-1))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        losses += [math.exp(loss.item()), norm.item()]
    losses.append(write_text(model))
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
