"""CoCa: contrastive captions over given image tokens."""

import json

import torch
from coca_pytorch import CoCa

torch.manual_seed(0)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 32, 8, 8)

    def forward(self, images):
        return self.patches(images).flatten(2).transpose(1, 2)


model = CoCa(
    dim=32, img_encoder=Encoder(), image_dim=32, num_tokens=40, unimodal_depth=1,
    multimodal_depth=1, dim_head=16, heads=2, num_img_queries=8,
)  # fmt: skip
text, images = torch.randint(1, 40, (3, 10)), torch.randn(3, 3, 16, 16)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = model(text=text, images=images, return_loss=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
text_embeds, image_embeds = model(text=text, images=images, return_embeddings=True)
logits = model(text=text, images=images)
print(
    json.dumps([losses, text_embeds[0].tolist(), image_embeds[0].tolist(), logits[0, 0].tolist()])
)
