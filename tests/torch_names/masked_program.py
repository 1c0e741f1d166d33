"""Masked tensors: the same text runs under PyTorch and under ``as_torch`` and prints the same."""

import warnings

import torch
from torch.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

warnings.simplefilter("ignore", UserWarning)
DATA = torch.arange(6.0).reshape(2, 3)
MASK = torch.tensor([[True, False, True], [False, True, True]])


def shown(value):
    if is_masked_tensor(value):
        data = value.get_data().detach().masked_fill(~value.get_mask(), 0)
        return "masked", [round(v, 4) for v in data.flatten().tolist()], value.get_mask().tolist()
    if isinstance(value, (list, tuple)):
        return [shown(member) for member in value]
    return value


def made():
    return masked_tensor(DATA, MASK)


OTHER = masked_tensor(torch.full((2, 3), 2.0), MASK)
SHIFTED = masked_tensor(DATA, ~MASK)
CALLS = {
    "made": lambda m: m,
    "text": lambda m: repr(m),
    "text of ints": lambda m: repr(masked_tensor(DATA.long(), MASK)),
    "text of one": lambda m: (repr(m.sum()), repr(masked_tensor(DATA[0, 1], MASK[0, 1]))),
    "class": lambda m: (type(m) is MaskedTensor, isinstance(m, torch.Tensor), m.shape == (2, 3)),
    "plain": lambda m: m.to_tensor(-1.0).tolist(),
    "scalars": lambda m: ((m * 2 + 1) / 3 - 0.5, 2 * m, 1 + m, m**2, m // 2, m % 2),
    "masked": lambda m: (m + OTHER, m - OTHER, m * OTHER, m / OTHER, torch.maximum(m, OTHER)),
    "tensors": lambda m: (m + torch.ones(2, 3), m * torch.tensor([1.0, 2.0, 3.0])),
    "compared": lambda m: (m > 2, m == OTHER, m <= OTHER, torch.eq(m, 4.0), m != 4),
    "functions": lambda m: (
        m.sin(), torch.exp(m), -m, abs(m), m.sqrt(), m.clamp(1, 4), torch.sigmoid(m), m.round()
    ),
    "in place": lambda m: (m.add_(1), m.sin_(), m.mul_(OTHER), m),
    "sums": lambda m: (m.sum(), m.sum(0), m.sum(1, keepdim=True), torch.sum(m, dim=1)),
    "means": lambda m: (m.mean(), m.mean(0), m.mean(dim=1)),
    "extremes": lambda m: (m.amax(1), m.amin(0), m.amax(), m.argmax(1), m.argmin(0), m.argmax()),
    "products": lambda m: (m.prod(), m.prod(1), m.var(1), m.std(1)),
    "nothing left": lambda m: masked_tensor(DATA, torch.zeros(2, 3).bool()).sum(1),
    "all": lambda m: (m > 1).all(),
    "softmax": lambda m: (m.softmax(1), torch.nn.functional.softmax(m, 0)),
    "shapes": lambda m: (
        m[0], m[:, 1:], m.transpose(0, 1), m.t(), m.view(6), m.reshape(3, 2), m.unsqueeze(0),
        torch.stack([m, OTHER]), torch.cat([m, m], 1), m.split(1),
    ),
    "where": lambda m: torch.where(DATA > 2, m, OTHER),
    "copies": lambda m: (m.clone(), m.detach(), torch.ones_like(m)),
    "from": lambda m: as_masked_tensor(DATA + 1, MASK),
    "other masks": lambda m: m + SHIFTED,
    "wrong mask": lambda m: masked_tensor(DATA, MASK.float()),
    "wrong shape": lambda m: masked_tensor(DATA, MASK[0]),
    "wrong data": lambda m: masked_tensor([1.0], MASK),
    "no meaning": lambda m: torch.linalg.inv(m[:, :2]),
}  # fmt: skip


def gradients():
    leaf = masked_tensor(DATA, MASK, requires_grad=True)
    (leaf * leaf).sum().backward()
    data = DATA.clone().requires_grad_()
    (as_masked_tensor(data, MASK).exp().mean(1).sum() * 2).sum().backward()
    grad = data.grad.get_data() if is_masked_tensor(data.grad) else data.grad
    print("gradients", shown(leaf.grad), [round(v, 3) for v in (grad * MASK).flatten().tolist()])


for name, call in CALLS.items():
    try:
        print(name, shown(call(made())))
    except (TypeError, ValueError) as error:
        print(name, type(error).__name__)
gradients()
