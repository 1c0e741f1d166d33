"""Losses of signals in the time and frequency domain."""

import json

import auraloss
import torch

torch.manual_seed(0)
target = torch.randn(2, 1, 4096)
found = []
for loss in (
    auraloss.time.ESRLoss(), auraloss.time.SISDRLoss(), auraloss.time.DCLoss(),
    auraloss.time.LogCoshLoss(), auraloss.freq.STFTLoss(fft_size=256, hop_size=64, win_length=256),
    auraloss.freq.MultiResolutionSTFTLoss([256, 128], [64, 32], [256, 128]),
):  # fmt: skip
    guess = (target + 0.1 * torch.randn(2, 1, 4096)).requires_grad_()
    value = loss(guess, target)
    value.backward()
    found += [value.item(), guess.grad.abs().sum().item()]
print(json.dumps(found))
