"""Networks of pytorchcv."""

import json
import tempfile
from pathlib import Path

import torch
from pytorchcv.models.mobilenetv2 import MobileNetV2
from pytorchcv.models.resnet_cifar import get_resnet_cifar
from pytorchcv.models.seresnet_cifar import get_seresnet_cifar

results = []
for make in (
    lambda: get_resnet_cifar(num_classes=10, blocks=20, bottleneck=False),
    lambda: get_seresnet_cifar(num_classes=10, blocks=20, bottleneck=False),
    lambda: MobileNetV2(
        channels=[[8], [12, 12]], init_block_channels=8, final_block_channels=16,
        remove_exp_conv=False, in_size=(16, 16), num_classes=4,
    ),
):  # fmt: skip
    torch.manual_seed(0)
    model = make()
    x, y = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    if isinstance(model, MobileNetV2):
        model.features.final_pool = torch.nn.AdaptiveAvgPool2d(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    results.append(losses)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder) / "weights.pth")
        model.load_state_dict(torch.load(Path(folder) / "weights.pth"))
print(json.dumps(results))
