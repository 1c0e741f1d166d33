"""Samples of rows that make tensors from descriptions and data, and of ``detach``."""

from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.testing.samples import Array, complex_normal, normal, sample

# -- constants ----------------------------------------------------------------------------------

sample("full", lambda ns: ns.full((2, 3), 1.5), reference=lambda: np.full((2, 3), 1.5, np.float32))
sample("full", lambda ns: ns.full((), 7), reference=lambda: np.array(7), label="scalar")
sample("full", lambda ns: ns.full((0, 2), True), label="empty")
sample("full", lambda ns: ns.full((2,), -1.7, dtype=ns.int8), label="truncated")
sample("full", lambda ns: ns.full((2,), -1, dtype=ns.uint8), label="wrapped")
sample("full", lambda ns: ns.zeros(2, 3, dtype=ns.float64), reference=lambda: np.zeros((2, 3)))
sample("full", lambda ns: ns.ones((3,), dtype=ns.bfloat16), label="bfloat16")
sample("full", lambda ns, x: ns.full_like(x, 2), normal(2, 2), label="like")
sample("full", lambda ns, x: x.new_ones(3), normal(2, 2), label="new")

sample("eye", lambda ns: ns.eye(3), reference=lambda: np.eye(3, dtype=np.float32))
sample("eye", lambda ns: ns.eye(2, 4, dtype=ns.int64), reference=lambda: np.eye(2, 4, dtype=int))
sample("eye", lambda ns: ns.eye(3, 0), label="empty")

sample("constant", lambda ns: ns.tensor([[1.5, 2], [3, 4]]),
       reference=lambda: np.array([[1.5, 2], [3, 4]], np.float32), label="floats")  # fmt: skip
sample("constant", lambda ns: ns.tensor([True, False]), label="booleans")
sample("constant", lambda ns: ns.tensor(3), reference=lambda: np.array(3), label="scalar")
sample("constant", lambda ns: ns.tensor([1, 2j]), label="complex")
sample("constant", lambda ns: ns.tensor([[], []]), label="empty")
sample("constant", lambda ns: ns.hann_window(8, dtype=ns.float64), label="window")

# -- ranges -------------------------------------------------------------------------------------

sample("arange", lambda ns: ns.arange(5), reference=lambda: np.arange(5))
sample("arange", lambda ns: ns.arange(7, -4, -3), reference=lambda: np.arange(7, -4, -3))
sample("arange", lambda ns: ns.arange(0.5, 6, 0.1, dtype=ns.float64),
       reference=lambda: np.arange(0.5, 6, 0.1), label="floats")  # fmt: skip
sample("arange", lambda ns: ns.arange(3, 3), label="empty")
sample("arange", lambda ns: ns.arange(0, 10, 2.5, dtype=ns.int64), label="truncated")
sample("arange", lambda ns: ns.arange(1, 4, 0.25, dtype=ns.bfloat16), label="bfloat16")

sample("linspace", lambda ns: ns.linspace(-1, 3, 7, dtype=ns.float64),
       reference=lambda: np.linspace(-1, 3, 7))  # fmt: skip
sample("linspace", lambda ns: ns.linspace(3, -10, 20), label="float32")
sample("linspace", lambda ns: ns.linspace(0, 1, 1), label="one")
sample("linspace", lambda ns: ns.linspace(0, 1, 0), label="empty")
sample("linspace", lambda ns: ns.linspace(0, 10, 7, dtype=ns.int64), label="integers")
sample("linspace", lambda ns: ns.linspace(1, 2 + 1j, 4), label="complex")
sample("linspace", lambda ns: ns.linspace(0, 1, 12, dtype=ns.float16), label="float16")

sample("logspace", lambda ns: ns.logspace(-1, 2, 7, dtype=ns.float64),
       reference=lambda: np.logspace(-1, 2, 7))  # fmt: skip
sample("logspace", lambda ns: ns.logspace(0, 3, 4, base=2, dtype=ns.int64), label="integers")
sample("logspace", lambda ns: ns.logspace(2, 5, 1), label="one")

# -- complex numbers from parts -----------------------------------------------------------------
# PyTorch has a complex type of 16-bit floats too, so the types of results are not the same.


def parts(call: Callable[..., object], *inputs: Array, label: str = "", **options: Any) -> None:
    sample("complex", call, *inputs, torch=False, dtypes=("float32",), label=label, **options)


parts(lambda ns, a, b: ns.complex(a, b), normal(2, 3), normal(2, 3, seed=1),
      reference=lambda a, b: a + 1j * b)  # fmt: skip
parts(lambda ns, a, b: ns.complex(a, b), normal(2, 1), normal(3),
      reference=lambda a, b: a + 1j * b, label="broadcast")  # fmt: skip
parts(lambda ns, a, b: ns.complex(a, b), normal(), normal(seed=1), label="scalar")
parts(lambda ns, a, b: ns.complex(a, b), normal(0, 2), normal(0, 2), label="empty")
parts(lambda ns, a, b: ns.polar(a, b), normal(2, 3), normal(2, 3, seed=1),
      reference=lambda a, b: a * np.exp(1j * b), label="polar")  # fmt: skip

# -- without history ----------------------------------------------------------------------------

sample("detach", lambda ns, x: ns.detach(x), normal(2, 3), reference=lambda x: x)
sample("detach", lambda ns, x: ns.detach(x.T), normal(2, 3), reference=lambda x: x.T, label="view")
sample("detach", lambda ns, x: x.data, complex_normal(2), reference=lambda x: x, label="data")
