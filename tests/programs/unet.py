"""A U-Net marks the discs in noisy pictures, with skip connections and resampling."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, padding_mode="reflect", bias=False),
        nn.GroupNorm(2, outputs),
        nn.ReLU6(),
        nn.Conv2d(outputs, outputs, 3, padding=1, groups=outputs),
        nn.Conv2d(outputs, outputs, 1),
        nn.SELU(),
    )


class UNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.down = nn.ModuleList([double_conv(1, width), double_conv(width, 2 * width)])
        self.bottom = double_conv(2 * width, 2 * width)
        self.up = nn.ModuleList([double_conv(4 * width, width), double_conv(2 * width, width)])
        self.shuffle = nn.Sequential(nn.Conv2d(width, 4, 1), nn.PixelShuffle(2), nn.AvgPool2d(2))

    def forward(self, x):
        skipped = []
        for block in self.down:
            x = block(x)
            skipped.append(x)
            x = F.max_pool2d(x, kernel_size=2)
        x = self.bottom(x)
        for block, modes in zip(self.up, ("bilinear", "nearest"), strict=True):
            corners = {"align_corners": True} if modes == "bilinear" else {}
            x = F.interpolate(x, scale_factor=2, mode=modes, **corners)
            x = block(torch.cat([skipped.pop(), x], dim=1))
        return self.shuffle(x)


def make_discs(size, side=16):
    centre, radius = torch.empty(size, 2, 1, 1).uniform_(4, 12), 2 + 3 * torch.rand(size, 1, 1)
    line = torch.arange(side)
    distance = torch.hypot(line[:, None] - centre[:, 0], line[None, :] - centre[:, 1])
    mask = (distance < radius).to(centre.dtype).unsqueeze(1)
    return mask + 0.4 * torch.randn(size, 1, side, side), mask


def dice_loss(logits, mask, smooth=1.0):
    guess = torch.sigmoid(logits).flatten(1)
    mask = mask.flatten(1)
    overlap = torch.einsum("bi,bi->b", guess, mask)
    return (1 - (2 * overlap + smooth) / (guess.sum(1) + mask.sum(1) + smooth)).mean()


def train(steps=8):
    torch.manual_seed(24)
    model = UNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.002, momentum=0.8, centered=True)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=4)
    losses = []
    for _ in range(steps):
        pictures, mask = make_discs(6)
        logits = model(pictures)
        loss = F.binary_cross_entropy_with_logits(logits, mask) + dice_loss(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm.step()
        losses.append(loss.item())
    with torch.no_grad():
        pictures, mask = make_discs(6)
        losses.append((model(pictures).gt(0) == mask.bool()).double().mean().item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
