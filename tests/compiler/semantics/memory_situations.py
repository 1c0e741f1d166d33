"""Two arguments in many situations of memory (apart, overlapping, strided, through NumPy, parts of
complex numbers, ...), and steps that write to one and read the other; the situation changes from
call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .registry import Seen, attempt, case, ramp

# Makes two tensors of four elements, and what shows all of their memory.
Situation = Callable[[Any, float], tuple[Any, Any, list[Any]]]
SITUATIONS: list[Situation] = []


def situation(function: Situation) -> Situation:
    SITUATIONS.append(function)
    return function


@situation
def apart(lib, n):
    a, b = ramp(lib, 4, start=n), ramp(lib, 4, start=2.0 + n)
    return a, b, [a, b]


@situation
def same_object(lib, n):
    a = ramp(lib, 4, start=n)
    return a, a, [a]


@situation
def two_handles(lib, n):
    a = ramp(lib, 4, start=n)
    return a, a.view(4), [a]


@situation
def detached(lib, n):
    a = ramp(lib, 4, start=n)
    return a, a.detach(), [a]


@situation
def data(lib, n):
    a = ramp(lib, 4, start=n)
    return a.data, a, [a]


@situation
def overlapping(lib, n):
    base = ramp(lib, 7, start=n)
    return base[:4], base[3:], [base]


@situation
def overlapping_back(lib, n):
    base = ramp(lib, 7, start=n)
    return base[2:6], base[:4], [base]


@situation
def halves(lib, n):
    base = ramp(lib, 8, start=n)
    return base[:4], base[4:], [base]


@situation
def interleaved(lib, n):
    base = ramp(lib, 8, start=n)
    return base[::2], base[1::2], [base]


@situation
def strided_and_dense(lib, n):
    base = ramp(lib, 8, start=n)
    return base[::2], base[2:6], [base]


@situation
def row_and_column(lib, n):
    base = ramp(lib, 4, 4, start=n)
    return base[1], base[:, 2], [base]


@situation
def column_and_column(lib, n):
    base = ramp(lib, 4, 4, start=n)
    return base[:, 1], base.t()[1], [base]


@situation
def transposed_rows(lib, n):
    base = ramp(lib, 4, 4, start=n)
    return base.t()[0], base[0], [base]


@situation
def expanded(lib, n):
    one = ramp(lib, 1, start=n)
    a = ramp(lib, 4)
    return a, one.expand(4), [a, one]


@situation
def expanded_of_a(lib, n):
    a = ramp(lib, 4, start=n)
    return a, a[1:2].expand(4), [a]


@situation
def diagonal(lib, n):
    base = ramp(lib, 4, 4, start=n)
    return base.diagonal(), base[2], [base]


@situation
def as_strided(lib, n):
    base = ramp(lib, 8, start=n)
    return base.as_strided((4,), (2,), 1), base.as_strided((4,), (1,), 2), [base]


@situation
def unfolded(lib, n):
    base = ramp(lib, 6, start=n)
    w = base.unfold(0, 4, 1)
    return w[0], w[2], [base]


@situation
def numpy_same(lib, n):
    array = np.arange(4, dtype=np.float32) + n
    return lib.from_numpy(array), lib.from_numpy(array), [array]


@situation
def numpy_overlap(lib, n):
    array = np.arange(8, dtype=np.float32) + n
    return lib.from_numpy(array[:4]), lib.from_numpy(array[2:6]), [array]


@situation
def numpy_steps(lib, n):
    array = np.arange(8, dtype=np.float32) + n
    return lib.from_numpy(array[::2]), lib.from_numpy(array[:4]), [array]


@situation
def numpy_halves(lib, n):
    array = np.arange(8, dtype=np.float32) + n
    return lib.from_numpy(array[:4]), lib.from_numpy(array[4:]), [array]


@situation
def numpy_and_view(lib, n):
    a = ramp(lib, 4, start=n)
    return a, lib.from_numpy(a.numpy()), [a]


@situation
def numpy_column(lib, n):
    array = (np.arange(16, dtype=np.float32) + n).reshape(4, 4)
    return lib.from_numpy(array[:, 1]), lib.from_numpy(array[1]), [array]


@situation
def viewed_as_int_and_back(lib, n):
    a = ramp(lib, 4, start=n)
    return a, a.view(lib.int32).view(lib.float32), [a]


@situation
def set_to(lib, n):
    a = ramp(lib, 4, start=n)
    b = lib.zeros(4)
    b.set_(a)
    return a, b, [a, b]


@situation
def data_assigned(lib, n):
    a = ramp(lib, 4, start=n)
    b = lib.zeros(4)
    b.data = a
    return a, b, [a, b]


@situation
def resized(lib, n):
    a = lib.tensor([0.5, n])
    a.resize_(4)
    a[2:] = 1.0
    return a, a[:].view(4), [a]


@situation
def shared(lib, n):
    a = lib.tensor([0.5, n, 2.0, 3.0]).share_memory_()
    return a, a[:], [a]


@situation
def unbound(lib, n):
    base = ramp(lib, 2, 4, start=n)
    a, b = base.unbind(0)
    return a, b, [base]


@situation
def split(lib, n):
    base = ramp(lib, 8, start=n)
    a, b = base.split(4)
    return b, a, [base]


@situation
def chunk_overlap(lib, n):
    base = ramp(lib, 8, start=n)
    a, _ = base.chunk(2)
    return a, base[1:5], [base]


@situation
def permuted(lib, n):
    base = ramp(lib, 2, 4, 2, start=n).permute(2, 0, 1)
    return base[0, 1], base[1, 1], [base]


@situation
def narrow(lib, n):
    base = ramp(lib, 9, start=n)
    return base.narrow(0, 1, 4), base.narrow(0, 4, 4), [base]


@situation
def memoryview_(lib, n):
    buf = bytearray((np.arange(8, dtype=np.float32) + n).tobytes())
    return (
        lib.frombuffer(buf, dtype=lib.float32, count=4),
        lib.frombuffer(buf, dtype=lib.float32, count=4, offset=8),
        [np.frombuffer(buf, np.float32)],
    )


@situation
def storage_made(lib, n):
    a = ramp(lib, 4, start=n)
    b = lib.empty(0).set_(a.untyped_storage(), 0, (4,), (1,))
    return a, b, [a]


@situation
def dlpack(lib, n):
    a = ramp(lib, 4, start=n)
    b = lib.from_dlpack(a)
    return a, b, [a, b]


@situation
def grad_of_a(lib, n):
    a = ramp(lib, 4, start=n).requires_grad_()
    a.grad = ramp(lib, 4)
    return a.detach(), a.grad, [a, a.grad]


@situation
def real_of_complex(lib, n):
    c = lib.complex(ramp(lib, 4, start=n), ramp(lib, 4))
    return c.real, c.imag, [c.real, c.imag]


@situation
def view_as_real(lib, n):
    c = lib.complex(ramp(lib, 4, start=n), ramp(lib, 4))
    v = lib.view_as_real(c)
    return v[:, 0], c.real, [v]


def steps(lib: Any) -> list[Callable[[Any, Any], Any]]:
    """What a step does with the two tensors."""

    def add_in(a, b):
        a.add_(1.0)
        return b * 2

    def both(a, b):
        a.mul_(2.0)
        b.add_(a)
        return a.sum()

    def copy(a, b):
        a.copy_(b * 1.0)
        b.zero_()
        return a + 0

    def copy_direct(a, b):
        a.copy_(b)
        return b + a

    def out(a, b):
        lib.add(a, b, out=a)
        return b.sum()

    def out_b(a, b):
        lib.mul(a, 3.0, out=b)
        return a.sum()

    def element(a, b):
        a[1:3] = 5.0
        return b.clone()

    def through_view(a, b):
        (a.view(2, 2)[0] if a.is_contiguous() else a[0:2]).fill_(7.0)
        return b.cumsum(0)

    def returns_views(a, b):
        return a[1:], b

    def returns_written(a, b):
        a.add_(b.sum())
        return a, b[:2]

    def index(a, b):
        a[lib.tensor([0, 2])] += 1.0
        return b * b

    def scatter(a, b):
        a.scatter_(0, lib.tensor([3, 1]), 9.0)
        return b.exp()

    def masked(a, b):
        a.masked_fill_(b > 1.0, 0.5)
        return b - a

    def swap(a, b):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)
        return (a - b).abs().sum()

    def reads(a, b):
        return (a * b).sum(), a - b

    def detach_write(a, b):
        a.detach().add_(1.0)
        b.data.mul_(0.5)
        return a + b

    def grads(a, b):
        w = lib.ones(4, requires_grad=True)
        (w * a * b).sum().backward()
        a.sub_(w.grad)
        return w.grad, b.sum()

    def lerp(a, b):
        a.lerp_(b, 0.25)
        b.addcmul_(a, a, value=0.1)
        return a.norm()

    def set_in(a, b):
        c = a + 1.0
        a.copy_(c[..., :])
        b[...] = c
        return c

    def is_same(a, b):
        if a is b:
            return a.add_(1.0)
        if a.data_ptr() == b.data_ptr():
            return b.sub_(1.0)
        return a * b

    def version(a, b):
        v = a._version
        a.add_(1.0)
        return a._version - v, b._version >= 0, b * 1.0

    def flip_copy(a, b):
        a.copy_(b.flip(0))
        return b + 1

    def roll(a, b):
        b[1:] = a[:-1]
        return a.sum()

    def stacked(a, b):
        s = lib.stack([a, b])
        s.add_(1.0)
        a.copy_(s[1])
        return s, b * 1

    return [
        add_in,
        both,
        copy,
        copy_direct,
        out,
        out_b,
        element,
        through_view,
        returns_views,
        returns_written,
        index,
        scatter,
        masked,
        swap,
        reads,
        detach_write,
        grads,
        lerp,
        set_in,
        is_same,
        version,
        flip_copy,
        roll,
        stacked,
    ]


def pair(number: int, function: Situation, other: Situation) -> Callable[[Any, Any], Seen]:
    """Calls with the memory apart, and in two situations."""
    orders = (
        [function, function, apart, apart, function, other],
        [apart, apart, function, function, apart, function],
        [function, apart, other, function, other, apart],
    )
    sequence = orders[number % len(orders)]

    def calls(lib: Any, wrap: Any) -> Seen:
        step = wrap(steps(lib)[number % len(steps(lib))])
        for n, situation in enumerate(sequence):
            a, b, shown = situation(lib, float(n))
            yield attempt(step, a, b)
            yield shown, a, b

    return calls


def register() -> None:
    """Each situation with two of the steps."""
    for number, function in enumerate(SITUATIONS):
        for turn in range(2):
            other = SITUATIONS[(7 * number + 11 * turn + 1) % len(SITUATIONS)]
            made = pair(number + 5 * turn, function, other)
            made.__name__ = f"{function.__name__}_{turn}"
            # PyTorch computes nothing certain where the memory of arguments overlaps in part.
            case(made, torch=False)


register()
