"""A recurrent recognizer with the CTC loss, and greedy decoding."""

import torch
from torch import nn


class Recognizer(nn.Module):
    def __init__(self, classes=5, width=12):
        super().__init__()
        self.listen = nn.LSTM(4, width, num_layers=2, bidirectional=True)
        self.classify = nn.Linear(2 * width, classes)

    def forward(self, sound):
        return self.classify(self.listen(sound)[0]).log_softmax(-1)


def decode(log_probs):
    best = log_probs.argmax(-1).T
    return [torch.unique_consecutive(row)[torch.unique_consecutive(row) > 0] for row in best]


def train(steps=6):
    torch.manual_seed(9)
    model, criterion = Recognizer(), nn.CTCLoss(zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        sound = torch.randn(14, 6, 4)
        targets = torch.randint(1, 5, (6, 3))
        lengths, target_lengths = torch.full((6,), 14), torch.randint(1, 4, (6,))
        loss = criterion(model(sound), targets, lengths, target_lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        found = decode(model(sound))
    return [*losses, float(sum(len(row) for row in found))]


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
