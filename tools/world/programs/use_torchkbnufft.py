"""The Fourier transform at points that lie on no grid."""

import json

import torch
import torchkbnufft

torch.manual_seed(0)
places = (torch.rand(2, 40) - 0.5) * 6
image = torch.randn(1, 1, 8, 8, dtype=torch.complex64)
forward = torchkbnufft.KbNufft(im_size=(8, 8))
adjoint = torchkbnufft.KbNufftAdjoint(im_size=(8, 8))
data = forward(image, places)
guess = torch.zeros(1, 1, 8, 8, dtype=torch.complex64, requires_grad=True)
optimizer = torch.optim.SGD([guess], lr=0.1)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = (forward(guess, places, norm="ortho") - data).abs().square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
back = adjoint(data, places)
weights = torchkbnufft.calc_density_compensation_function(ktraj=places, im_size=(8, 8))
parts = torch.view_as_real(data), torch.view_as_real(back), weights.real
print(json.dumps([losses, *(p.flatten().tolist() for p in parts)]))
