# ruff: noqa
"""Mistakes in the names, keywords and types of many modules, one in each line that has a mark.

Not here is what no type checker can find: attributes of a module may be its submodules
(``nn.Linear(4, 4).weights``), and ``item()`` gives a number of any type.
"""

import evergrad as eg
import evergrad.nn.functional as F
import evergrad.nn.functionl as G  # mistake
import evergrad.optm  # mistake
from evergrad import (
    nn,
    optim,
    linalg,
    fft,
    special,
    func,
    autograd,
    memory,
    amp,
    distributions as D,
    sparse,
    nested,
    io,
    serialization,
)
from evergrad.nn import Linaer  # mistake
from evergrad.optim import Adma  # mistake
from evergrad.optim.lr_scheduler import CosineAnneal  # mistake
from evergrad.utils.data import DataLoader, TensorDataset, DataLoder  # mistake
from evergrad.nn.utils import clip_grad_nrom_  # mistake

x = eg.randn(4, 4)
m = nn.Linear(4, 4)
a1 = eg.zeroes(3)  # mistake
a2 = eg.zeros(3, dtype="float32")  # mistake
a3 = eg.zeros(3, dtyp=eg.float32)  # mistake
a4 = eg.randn(3, requires_gard=True)  # mistake
a5 = x.reshape_(2, 8)  # mistake
a6 = x.sum(dims=0)  # mistake
a7 = x.mean(axes=0)  # mistake
a8: float = x.item  # mistake
b1 = x.permutee(1, 0)  # mistake
b2 = x.max(dim=0).value  # mistake
b4: int = x.shape  # mistake
b5 = x.size(0).foo  # mistake
b6 = eg.cat(x, y=0)  # mistake
b7 = eg.stack([x, x], dimm=0)  # mistake
b8 = eg.where(x > 0, x)  # mistake
b9 = eg.arange("3")  # mistake
c1 = eg.einsum(x, x)  # mistake
c2: list[float] = x.numpy()  # mistake
c3 = linalg.sdv(x)  # mistake
c4 = linalg.norm(x, order=2)  # mistake
c5 = linalg.svd(x).U2  # mistake
c6 = fft.ftt(x)  # mistake
c7 = fft.fft(x, nn=4)  # mistake
c8 = special.erff(x)  # mistake
c9 = special.gammainc(x)  # mistake
d1 = nn.Linear(4)  # mistake
d2 = nn.Linear(4, 4, biass=False)  # mistake
d3 = nn.Conv2d(3, 8)  # mistake
d4 = nn.Conv2d(3, 8, 3, padding_mod="zeros")  # mistake
d5 = nn.MultiheadAttention(8, heads=2)  # mistake
d6 = nn.LayerNrom(4)  # mistake
d7 = nn.Dropout(prob=0.1)  # mistake
d8 = nn.Embedding("4", 4)  # mistake
e2 = m.state_dict().foo()  # mistake
e4: int = m(x)  # mistake
e5 = nn.Module.register_bufer  # mistake
e6 = F.relu(x, in_place=True)  # mistake
e7 = F.softmax(x, dimension=1)  # mistake
e8 = F.cross_entropy(x, x, reductions="mean")  # mistake
e9 = F.cross_entropy(x)  # mistake
f1 = F.scaled_dot_product_attention(x, x, x, causal=True)  # mistake
f2 = F.interpolate(x, scale=2)  # mistake
f3 = F.gelu(x, approx="tanh")  # mistake
f4 = optim.SGD(m.parameters(), lr=0.1, momentums=0.9)  # mistake
f6 = optim.AdamW(m.parameters(), betas=0.9)  # mistake
opt = optim.SGD(m.parameters(), lr=0.1)
f7 = opt.zero_gard()  # mistake
f8 = optim.lr_scheduler.StepLR(opt, steps=3)  # mistake
f9 = optim.lr_scheduler.StepLR(m, step_size=3)  # mistake
g1 = DataLoader(TensorDataset(x), batchsize=4)  # mistake
g2 = DataLoader(TensorDataset(x), batch_size="4")  # mistake
g3 = func.grad(lambda v: v.sum(), argnum=0)  # mistake
g4 = func.vmapp(lambda v: v)  # mistake
g5 = autograd.grad(x.sum(), x, create_graf=True)  # mistake
g6 = eg.compile(lambda v: v, memory_limits="1MB")  # mistake
g7 = memory.steedy()  # mistake
g8 = amp.autocast("cpu", dtypes=eg.bfloat16)  # mistake
g9 = D.Normal(0.0)  # mistake
h1 = D.Normal(0.0, 1.0).samples()  # mistake
h2 = D.Categorical(logit=x)  # mistake
h3 = eg.save(x)  # mistake
h4 = eg.load("x.pt", weight_only=True)  # mistake
h5 = eg.manual_sed(0)  # mistake
h6 = eg.set_num_threads("2")  # mistake
h7 = eg.no_gard()  # mistake
h8 = x.requires_grad_(1, 2)  # mistake
h9 = x.backward(retain=True)  # mistake
i1 = x.to(dtypee=eg.float64)  # mistake
i2 = eg.float33  # mistake
i3 = x.grad.shape  # mistake
i4 = x + "a"  # mistake
i5 = x @ [1, 2]  # mistake
i6 = x["a"]  # mistake
i7 = eg.Size([1]).numell()  # mistake
i8 = eg.Generator().seed_it()  # mistake
i9 = x.clamp(minimum=0)  # mistake
j1 = x.scatter_ad(0, x, x)  # mistake
j2 = eg.tensor([1.0], dtype=float32)  # mistake
j3 = eg.full((2, 2))  # mistake
j4 = eg.linspace(0, 1, step=5)  # mistake
j5 = nn.init.xavier_unifrm_(m.weight)  # mistake
j6 = nn.init.normal_(m.weight, stdev=0.1)  # mistake
j7 = nn.utils.clip_grad_norm_(m.parameters(), max_nrm=1.0)  # mistake
j9 = nn.LSTM(4, 4, batchfirst=True)  # mistake
k1 = nn.TransformerEncoderLayer(8)  # mistake
k2 = nn.CrossEntropyLoss(label_smooth=0.1)  # mistake
k3 = nn.BatchNorm2d(4, momentums=0.1)  # mistake
k4 = eg.unique(x, return_count=True)  # mistake
k5: eg.Tensor = x.tolist  # mistake
k6: int = eg.isfinite(x)  # mistake
k7: eg.Tensor = x.split(2)  # mistake
k8: eg.Tensor = eg.meshgrid(x, x)  # mistake
k9: str = nn.functional.mse_loss(x, x)  # mistake
