"""A small ViT and a ResNet of timm: features, a training step, saved and loaded."""

import io
import json

import timm
import timm.optim
import torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)  # batches of four with batch norm amplify roundings
found = {}
for name, options in {
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48},
    "resnet10t": {},
}.items():
    model = timm.create_model(name, pretrained=False, num_classes=5, **options)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    x, y = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = timm.create_model(name, pretrained=False, num_classes=5, **options).eval()
    again.load_state_dict(torch.load(file))
    with torch.no_grad():
        assert torch.equal(model(x), again(x))
        found[name] = [*losses, model(x).flatten().tolist()]
    assert losses[-1] < losses[0]
print(json.dumps(found))
