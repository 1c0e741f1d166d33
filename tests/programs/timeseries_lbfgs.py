"""LSTM cells learn to continue sine waves; L-BFGS calls a closure for every evaluation."""

import torch
import torch.nn as nn
import torch.optim as optim


class Forecaster(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, series, future=0):
        """The next value for each one given, then ``future`` more: (B, T + future)."""
        h1, c1, h2, c2 = series.new_zeros(4, series.size(0), self.hidden)
        outputs = []
        for value in series.split(1, dim=1):
            h1, c1 = self.lstm1(value, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            outputs.append(self.linear(h2))
        for _ in range(future):
            h1, c1 = self.lstm1(outputs[-1], (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            outputs.append(self.linear(h2))
        return torch.cat(outputs, dim=1)


def make_waves(count, length):
    shift = torch.randint(-20, 20, (count, 1))
    return torch.sin((torch.arange(length)[None, :] + shift) / 3.0)


def train(steps=3):
    torch.manual_seed(13)
    waves = make_waves(6, 20)
    inputs, targets = waves[:, :-1], waves[:, 1:]
    model = Forecaster()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(model.parameters(), lr=0.8, max_iter=6, line_search_fn="strong_wolfe")
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    with torch.no_grad():
        forecast = model(inputs, future=5)
    losses.append(criterion(forecast[:, :-5], targets).item())
    losses += forecast[:, -5:].mean(0).tolist()
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
