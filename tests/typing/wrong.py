"""A program with four mistakes that a type checker finds, one in each line that has a mark."""

import evergrad as eg
from evergrad.optim import AdamW

x = eg.ones(3)
a = x.sofmax(0)  # mistake
b = eg.relUU(x)  # mistake
y: int = x.sum()  # mistake
o = AdamW([x], lrr=1)  # mistake
