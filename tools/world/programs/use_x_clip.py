"""CLIP on small images and texts."""

import json

import torch
from x_clip import CLIP

torch.manual_seed(0)
clip = CLIP(
    dim_text=16, dim_image=16, dim_latent=16, num_text_tokens=30, text_enc_depth=1,
    text_seq_len=8, text_heads=2, text_dim_head=8, visual_enc_depth=1, visual_image_size=16,
    visual_patch_size=8, visual_heads=2, visual_dim_head=8, visual_patch_dropout=0.0,
    use_all_token_embeds=True, decoupled_contrastive_learning=True,
)  # fmt: skip
text, images = torch.randint(1, 30, (4, 8)), torch.randn(4, 3, 16, 16)
optimizer = torch.optim.Adam(clip.parameters(), lr=1e-3)
losses = []
for _ in range(4):
    optimizer.zero_grad()
    loss = clip(text, images, return_loss=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
clip.eval()
with torch.no_grad():
    scores = clip(text, images)
print(json.dumps([losses, scores.flatten().tolist()]))
