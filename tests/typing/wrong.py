"""A program with mistakes that a type checker finds, one in each line that has a mark."""

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn
from evergrad.optim import AdamW

x = eg.ones(3)
a = x.sofmax(0)  # mistake
b = eg.relUU(x)  # mistake
y: int = x.sum()  # mistake
o = AdamW([x], lrr=1)  # mistake
c = F.conv2d(x, x, strid=2)  # mistake
d: eg.Tensor = F.max_pool2d(x, 2, return_indices=True)  # mistake
layer = nn.LSTM(4, 8, num_layer=2)  # mistake
