"""Kornia: geometry, features, filters, morphology, losses, augmentations with parameters."""

import json

import kornia as K
import kornia.augmentation as A
import torch

torch.manual_seed(0)
x = torch.rand(2, 3, 24, 24, requires_grad=True)
found = {}
calls = {
    "warp": lambda: K.geometry.warp_perspective(
        x, torch.eye(3)[None].repeat(2, 1, 1) + 0.01, (24, 24)
    ),
    "rotate": lambda: K.geometry.rotate(x, torch.tensor([20.0, -10.0])),
    "resize": lambda: K.geometry.resize(x, (12, 16), antialias=True),
    "canny": lambda: K.filters.canny(x)[0],
    "sobel": lambda: K.filters.sobel(x),
    "median": lambda: K.filters.median_blur(x, (3, 3)),
    "bilateral": lambda: K.filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
    "unsharp": lambda: K.filters.unsharp_mask(x, (3, 3), (1.0, 1.0)),
    "lab": lambda: K.color.rgb_to_lab(x),
    "hsv": lambda: K.color.rgb_to_hsv(x),
    "equalize": lambda: K.enhance.equalize_clahe(x),
    "dilation": lambda: K.morphology.dilation(x, torch.ones(3, 3)),
    "opening": lambda: K.morphology.opening(x, torch.ones(3, 3)),
    "harris": lambda: K.feature.harris_response(x),
    "dog": lambda: K.feature.dog_response(x[:, :1].expand(2, 3, 24, 24).reshape(2, 1, 3, 24, 24)),
    "dice": lambda: K.losses.dice_loss(x, torch.randint(0, 3, (2, 24, 24))),
    "ssim": lambda: K.losses.ssim_loss(x, x.detach().flip(-1), 5),
    "focal": lambda: K.losses.focal_loss(
        x, torch.randint(0, 3, (2, 24, 24)), 0.5, reduction="mean"
    ),
    "homography": lambda: K.geometry.find_homography_dlt(torch.rand(1, 8, 2), torch.rand(1, 8, 2)),
    "quaternion": lambda: K.geometry.conversions.quaternion_to_rotation_matrix(torch.randn(3, 4)),
}
for name, call in calls.items():
    torch.manual_seed(1)
    value = call()
    found[name] = value.detach().double().sum().item()
    if value.requires_grad:
        (slope,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
        found[name + " slope"] = 0.0 if slope is None else slope.abs().mean().item()
pipeline = A.AugmentationSequential(
    A.RandomHorizontalFlip(p=0.5),
    A.RandomAffine(15.0, p=1.0),
    A.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
    A.RandomErasing(p=1.0),
    A.RandomGaussianBlur((3, 3), (0.1, 2.0), p=1.0),
    data_keys=["input", "mask"],
)
torch.manual_seed(2)
image, mask = pipeline(x.detach(), (x.detach() > 0.5).float())
found["pipeline"] = [image.sum().item(), mask.sum().item()]
print(json.dumps(found))
