"""Small networks of timm that the other program does not have, its optimizers and schedulers."""

import json

import timm
import timm.optim
import timm.scheduler
import torch

found = {}
x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
for name, further in {
    "convnext_atto": {},
    "mobilenetv3_small_050": {},
    "efficientnet_b0": {},
    "regnetx_002": {},
    "ghostnet_050": {},
    "deit_tiny_patch16_224": {"img_size": 64},
    "mixer_s32_224": {"img_size": 64},
    "poolformer_s12": {},
    "repvgg_a0": {},
    "edgenext_xx_small": {},
    "mobilevit_xxs": {},
    "cait_xxs24_224": {"img_size": 64, "depth": 2},
}.items():
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=4, **further).eval()
    loss = model(x).pow(2).sum()
    loss.backward()
    gradient = sum(p.grad.abs().mean().item() for p in model.parameters() if p.grad is not None)
    found[name] = [loss.item(), gradient]
features = timm.create_model("resnet18", features_only=True, out_indices=(1, 3)).eval()
torch.manual_seed(0)
for name in ("lamb", "adabelief", "nadamw", "lion", "adafactor", "adan", "madgrad"):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = timm.optim.create_optimizer_v2(net, opt=name, lr=1e-2, weight_decay=0.01)
    scheduler = timm.scheduler.CosineLRScheduler(
        optimizer, t_initial=5, warmup_t=2, warmup_lr_init=1e-4
    )
    y = torch.randn(16, 4)
    for epoch in range(3):
        loss = (net(y) - y.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step(epoch + 1)
    found[name] = [loss.item(), optimizer.param_groups[0]["lr"]]
print(json.dumps(found))
