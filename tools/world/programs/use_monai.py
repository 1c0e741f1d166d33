"""A UNet of monai with its Dice loss and transforms."""

import json

import torch
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import Compose, NormalizeIntensity, RandFlip, ScaleIntensity

torch.manual_seed(0)
net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,))
loss_function = DiceLoss(to_onehot_y=True, softmax=True)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
transform = Compose([ScaleIntensity(), NormalizeIntensity(), RandFlip(prob=1.0)])
x = torch.stack([torch.as_tensor(transform(torch.randn(1, 8, 8))) for _ in range(2)])
x = torch.Tensor(x.numpy())
y = (x > 0).long()
losses = []
for _ in range(3):
    loss = loss_function(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(json.dumps([losses, net(x).flatten().tolist()]))
