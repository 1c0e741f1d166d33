"""A vision transformer says which quadrant of a picture is bright."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchEmbedding(nn.Module):
    def __init__(self, side=12, patch=4, width=16):
        super().__init__()
        self.count = (side // patch) ** 2
        self.project = nn.Conv2d(3, width, kernel_size=patch, stride=patch)

    def forward(self, x):
        return self.project(x).flatten(2).transpose(1, 2)  # (B, patches, width)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        y = self.norm1(x)
        y, _ = self.attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, width=16, classes=4):
        super().__init__()
        self.patches = PatchEmbedding(width=width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, self.patches.count + 1, width))
        self.written = Block(width, heads=4)
        layer = nn.TransformerEncoderLayer(
            width, nhead=2, dim_feedforward=32, activation="gelu", batch_first=True, norm_first=True
        )
        self.stacked = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.places, std=0.02)
        nn.init.trunc_normal_(self.class_token, std=0.02)
        nn.init.constant_(self.head.weight, 0.0)

    def forward(self, x):
        x = self.patches(x)
        x = torch.cat((self.class_token.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        x = self.stacked(self.written(x))
        return self.head(self.norm(x)[:, 0])


def make_pictures(size, side=12):
    label = torch.randint(4, (size,))
    pictures = torch.randn(size, 3, side, side)
    half = side // 2
    for i, quadrant in enumerate(label.tolist()):
        row, column = divmod(quadrant, 2)
        pictures[i, :, row * half :, column * half :][:, :half, :half].add_(1.0)
    return pictures, label


def train(steps=10):
    torch.manual_seed(8)
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    losses = []
    for _ in range(steps):
        pictures, label = make_pictures(16)
        loss = F.cross_entropy(model(pictures), label, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    model.train(False)
    pictures, label = make_pictures(32)
    with torch.no_grad():
        logits = model(pictures)
    losses.append(F.cross_entropy(logits, label).item())
    losses.append(logits.argmax(-1).eq(label).sum().item() / len(label))
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(train()):
        print(f"{step:3d}  {loss:.6f}")
