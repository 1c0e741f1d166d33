"""Spectrograms as layers, some of them trained."""

import json

import torch
from nnAudio.features import MFCC, STFT, CQT1992v2, MelSpectrogram

torch.manual_seed(0)
x = torch.sin(torch.linspace(0, 400, 4000))[None]
found = []
for layer in (
    STFT(n_fft=256, hop_length=128, sr=4000, output_format="Magnitude", verbose=False),
    MelSpectrogram(sr=4000, n_fft=256, n_mels=16, hop_length=128, verbose=False),
    CQT1992v2(sr=4000, hop_length=128, fmin=110, n_bins=24, verbose=False),
    MFCC(sr=4000, n_mfcc=8, n_fft=256, n_mels=16, hop_length=128, verbose=False),
):  # fmt: skip
    out = layer(x)
    found += [out.mean().item(), out.abs().amax().item(), float(out.shape[-1])]
trained = MelSpectrogram(sr=4000, n_fft=128, n_mels=8, hop_length=64, trainable_mel=True,
                         trainable_STFT=True, verbose=False)  # fmt: skip
optimizer = torch.optim.SGD(trained.parameters(), lr=1e-4)
for _ in range(3):
    loss = (trained(x) + 1).log().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
