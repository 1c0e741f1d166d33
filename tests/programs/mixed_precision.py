"""A network trained under autocast: products in bfloat16, weights and losses in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, FEATURES = 5, 16


class Gated(nn.Module):
    """A residual block in which one half of the features opens or shuts the other."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(2 * width, width)

    def forward(self, x):
        value, gate = self.expand(self.norm(x)).chunk(2, dim=-1)
        return x + self.shrink(value * F.silu(gate))


def make_model(width=32):
    return nn.Sequential(
        nn.Linear(FEATURES, width), Gated(width), Gated(width), nn.Linear(width, CLASSES)
    )


def make_batch(centres, size=32):
    label = torch.randint(0, CLASSES, (size,))
    return centres[label] + 0.5 * torch.randn(size, FEATURES), label


def train(steps=15):
    torch.manual_seed(17)
    centres = torch.randn(CLASSES, FEATURES)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=5)
    losses = []
    for _ in range(steps):
        x, label = make_batch(centres)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            logits = model(x)
            assert logits.dtype == torch.bfloat16
            with torch.autocast(device_type="cpu", enabled=False):
                penalty = 1e-3 * logits.float().square().mean()
            loss = F.cross_entropy(logits, label) + penalty
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
    losses.append(scaler.get_scale())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
