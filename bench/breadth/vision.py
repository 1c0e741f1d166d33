"""Images: classifiers, dense prediction, generators."""

from __future__ import annotations

from typing import Any

from bench.breadth import spellings
from bench.breadth.registry import Data, Work, workload


def residual_network(torch: Any, width: int = 32) -> Any:
    """ResNet's shape in small: two stages of basic blocks with BatchNorm."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outer)
            self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outer)
            self.skip = nn.Sequential()
            if stride != 1 or inner != outer:
                self.skip = nn.Sequential(
                    nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
                )

        def forward(self, x: Any) -> Any:
            y = F.relu(self.norm1(self.conv1(x)), inplace=True)
            return F.relu(self.norm2(self.conv2(y)) + self.skip(x))

    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10),
    )  # fmt: skip


def inverted_residuals(torch: Any) -> Any:
    """MobileNet's blocks: expand, depthwise, project, with ReLU6 and hard swish."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            hidden = 4 * inner
            self.skip = stride == 1 and inner == outer
            self.body = nn.Sequential(
                nn.Conv2d(inner, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
                nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
                nn.BatchNorm2d(hidden), nn.Hardswish(),
                nn.Conv2d(hidden, outer, 1, bias=False), nn.BatchNorm2d(outer),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.skip else self.body(x)

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
        Block(16, 24, 2), Block(24, 24, 1), Block(24, 40, 2), Block(40, 40, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Dropout(0.0), nn.Linear(40, 10),
    )  # fmt: skip


@workload()
def resnet(torch: Any) -> Work:
    model = residual_network(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    data = Data(torch)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    step = spellings.zero_first(optimizer, lambda x, y: loss(model(x), y))
    return Work(step, ((data.normal(16, 3, 32, 32), data.integers(10, 16)),))


@workload()
def mobilenet(torch: Any) -> Work:
    model = inverted_residuals(torch)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    data = Data(torch)
    step = spellings.zero_last(
        optimizer, lambda x, y: torch.nn.functional.cross_entropy(model(x), y)
    )
    return Work(step, ((data.normal(8, 3, 64, 64), data.integers(10, 8)),))


@workload()
def convnext(torch: Any) -> Work:
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width, eps=1e-6)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.scale = nn.Parameter(1e-2 * torch.ones(width))

        def forward(self, x: Any) -> Any:
            y = self.depthwise(x).permute(0, 2, 3, 1)  # (B, H, W, C)
            y = self.scale * self.down(nn.functional.gelu(self.up(self.norm(y))))
            return x + y.permute(0, 3, 1, 2)

    model = nn.Sequential(nn.Conv2d(3, 48, 4, 4), Block(48), Block(48), nn.Conv2d(48, 10, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Data(torch)

    def loss(x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(model(x).mean((2, 3)), y)

    return Work(
        spellings.zero_first(optimizer, loss), ((data.normal(8, 3, 64, 64), data.integers(10, 8)),)
    )


@workload()
def dilated_segmentation(torch: Any) -> Work:
    nn, F = torch.nn, torch.nn.functional
    layers: list[Any] = [nn.Conv2d(3, 24, 3, padding=1), nn.ELU()]
    for dilation in (1, 2, 4, 8):
        layers += [nn.Conv2d(24, 24, 3, padding=dilation, dilation=dilation), nn.ELU()]
    model = nn.Sequential(*layers, nn.Conv2d(24, 5, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Data(torch)
    weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.5])

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(model(x), y, weight=weights, ignore_index=4)

    batch = data.normal(4, 3, 48, 48), data.integers(5, 4, 48, 48)
    return Work(spellings.zero_first(optimizer, loss), (batch,))


@workload()
def video_conv3d(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(8, 16, 3, padding=1), nn.ReLU(), nn.AvgPool3d(2), nn.Flatten(),
        nn.Linear(16 * 2 * 8 * 8, 6),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Data(torch)
    step = spellings.zero_first(optimizer, lambda x, y: nn.functional.cross_entropy(model(x), y))
    return Work(step, ((data.normal(2, 3, 8, 32, 32), data.integers(6, 2)),))


@workload()
def unet(torch: Any) -> Work:
    nn, F = torch.nn, torch.nn.functional

    def double(inner: int, outer: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(4, outer), nn.SiLU(),
            nn.Conv2d(outer, outer, 3, padding=1), nn.SiLU(),
        )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.middle = double(1, 16), double(16, 32), double(32, 32)
            self.lift = nn.ConvTranspose2d(32, 16, 2, stride=2)
            self.up2, self.up1 = double(64, 32), double(32, 16)
            self.last = nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            a = self.down1(x)
            b = self.down2(F.max_pool2d(a, 2))
            c = F.interpolate(self.middle(F.max_pool2d(b, 2)), scale_factor=2, mode="bilinear")
            y = self.up2(torch.cat([b, c], dim=1))
            return self.last(self.up1(torch.cat((a, self.lift(y)), 1)))

    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = Data(torch)

    def dice(x: Any, y: Any) -> Any:
        p = torch.sigmoid(model(x))
        overlap = 2 * (p * y).sum((1, 2, 3)) + 1
        return (
            F.binary_cross_entropy(p, y)
            + 1
            - (overlap / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)).mean()
        )

    batch = data.normal(4, 1, 64, 64), (data.uniform(4, 1, 64, 64) > 0.7).float()
    return Work(spellings.zero_first(optimizer, dice), (batch,))


@workload()
def autoencoder_transposed(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.PReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1),
        nn.Sigmoid(),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images = Data(torch).uniform(32, 1, 28, 28)
    step = spellings.zero_first(optimizer, lambda: nn.functional.l1_loss(model(images), images))
    return Work(step)


@workload()
def gan(torch: Any) -> Work:
    """A generator and a discriminator in one step, with ``detach`` between them."""
    nn, F = torch.nn, torch.nn.functional
    generator = nn.Sequential(
        nn.ConvTranspose2d(32, 32, 4), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
    judge = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1),
        nn.BatchNorm2d(32), nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 4), nn.Flatten(0),
    )  # fmt: skip
    first = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    data = Data(torch)

    def step(real: Any, z: Any) -> Any:
        fake = generator(z)
        second.zero_grad()
        true_scores, false_scores = judge(real), judge(fake.detach())
        judged = F.binary_cross_entropy_with_logits(
            true_scores, torch.ones_like(true_scores)
        ) + F.binary_cross_entropy_with_logits(false_scores, torch.zeros_like(false_scores))
        judged.backward()
        second.step()
        first.zero_grad()
        scores = judge(fake)
        loss = F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))
        loss.backward()
        first.step()
        return judged.detach(), loss.detach()

    return Work(step, ((data.normal(16, 1, 16, 16), data.normal(16, 32, 1, 1)),))


@workload()
def vae(torch: Any) -> Work:
    """Draws its noise inside of the step."""
    nn, F = torch.nn, torch.nn.functional
    encode = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 2 * 20))
    decode = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 784))
    parameters = [*encode.parameters(), *decode.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    data = Data(torch)

    def loss(x: Any) -> Any:
        mean, logvar = encode(x).chunk(2, dim=-1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * logvar)
        likelihood = F.binary_cross_entropy_with_logits(decode(z), x, reduction="sum")
        return likelihood - 0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())

    return Work(spellings.zero_first(optimizer, loss), ((data.uniform(64, 784),),))


@workload()
def vit(torch: Any) -> Work:
    nn = torch.nn
    width, side, patch = 96, 32, 4

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, patch, patch)
            self.token = nn.Parameter(torch.zeros(1, 1, width))
            self.places = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
            layer = nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True,
                norm_first=True,
            )  # fmt: skip
            self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)  # (B, N, C)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.layers(x)[:, 0])

    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = Data(torch)
    parameters = list(model.parameters())
    step = spellings.clipped(
        torch, parameters, optimizer, lambda x, y: nn.functional.cross_entropy(model(x), y)
    )
    return Work(step, ((data.normal(16, 3, side, side), data.integers(10, 16)),))


@workload()
def diffusion_loss(torch: Any) -> Work:
    """Noise levels by lookup, drawn inside of the step; EMA of the weights."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(2, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 32, 3, padding=1), nn.SiLU(),
        nn.Conv2d(32, 1, 3, padding=1),
    )  # fmt: skip
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0)
    images = Data(torch).normal(16, 1, 24, 24)

    def step(x: Any) -> Any:
        t = torch.randint(0, 100, (x.shape[0],))
        noise = torch.randn_like(x)
        level = kept[t].view(-1, 1, 1, 1)
        noisy = level.sqrt() * x + (1 - level).sqrt() * noise
        time = (t.float() / 100).view(-1, 1, 1, 1).expand_as(x)
        loss = nn.functional.mse_loss(model(torch.cat([noisy, time], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for kept_weight, weight in zip(average, model.parameters(), strict=True):
                kept_weight.mul_(0.99).add_(weight, alpha=0.01)
        return loss.detach(), average[0]

    return Work(step, ((images,),))
