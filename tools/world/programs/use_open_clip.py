"""CLIP of open_clip, trained for two steps."""

import json

import open_clip
import torch
from open_clip import CLIP, ClipLoss

torch.manual_seed(0)
model = CLIP(
    embed_dim=16,
    vision_cfg={"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    text_cfg={"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
)
tokens = open_clip.tokenize(["a photo of a dog", "two cats", "a red car"], context_length=16)
images = torch.randn(3, 3, 32, 32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
criterion = ClipLoss()
found = [tokens.tolist()]
for _ in range(3):
    optimizer.zero_grad()
    image, text, scale = model(images, tokens)
    loss = criterion(image, text, scale)
    loss.backward()
    optimizer.step()
    found.append(loss.item())
print(json.dumps(found))
