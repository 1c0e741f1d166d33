"""Arguments and state that are not contiguous."""

from __future__ import annotations

from typing import Any

from .registry import Seen, batch, case, layer, leaf, ramp


@case
def flatten_of_a_permuted_argument(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.flatten()
        y.add_(1)
        return y

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 2, 3, start=float(n))
        yield step(x.t() if n % 2 else x)
        yield x


@case
def reshape_copies_or_views(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.reshape(6)
        y.mul_(2)
        return x.sum()

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, 2) if n % 2 else ramp(lib, 2, 3).t()
        yield step(x)
        yield x


@case
def contiguous_is_itself_or_a_copy(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.contiguous()
        y.zero_()
        return y is x

    step = wrap(step)
    for n in range(5):
        x = ramp(lib, 3, 2) if n % 2 else ramp(lib, 2, 3).t()
        yield step(x), x


@case
def strides_returned(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x * 2, list(x.stride()), x.is_contiguous()))
    for n in range(5):
        yield step(ramp(lib, 4, 3) if n % 2 else ramp(lib, 3, 4).t())


@case
def strides_decide(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x * 2 if x.is_contiguous() else x - 1)
    for n in range(5):
        yield step(ramp(lib, 3, 3) if n % 2 else ramp(lib, 3, 3).t())


@case
def every_second_element(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.add_(1)
        return x.cumsum(0)

    step = wrap(step)
    for n in range(5):
        base = ramp(lib, 8)
        yield step(base[::2] if n % 2 else base[:4])
        yield base


@case
def offset_slices(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.mul_(2).sum())
    base = ramp(lib, 10)
    for n in range(5):
        yield step(base[n : n + 4])
        yield base


@case
def columns_of_a_matrix(lib: Any, wrap: Any) -> Seen:
    def step(column, x):
        column.copy_(x)
        return column.norm()

    step = wrap(step)
    m = lib.zeros(3, 4)
    for n in range(4):
        yield step(m[:, n], ramp(lib, 3, start=float(n)))
        yield m


@case
def expanded_rows(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x + 1).sum(1))
    for n in range(4):
        x = ramp(lib, 1, 3)
        yield step(x.expand(4, 3)), step(ramp(lib, 4, 3, start=float(n)))


@case
def a_transposed_weight(lib: Any, wrap: Any) -> Seen:
    w = ramp(lib, 2, 3).t().requires_grad_()

    def step(x):
        loss = (x @ w).square().sum()
        loss.backward()
        with lib.no_grad():
            w.sub_(w.grad, alpha=0.01)
            w.grad = None
        return loss.detach()

    step = wrap(step)
    for n in range(4):
        yield step(batch(lib, n)), w, list(w.stride())


@case
def a_transposed_gradient(lib: Any, wrap: Any) -> Seen:
    w = ramp(lib, 2, 3).requires_grad_()
    step = wrap(lambda x: (x @ w.t()).sum().backward())
    for n in range(5):
        w.grad = None if n == 3 else ramp(lib, 3, 2).t()
        step(batch(lib, n))
        yield w.grad


@case
def channels_last(lib: Any, wrap: Any) -> Seen:
    conv = lib.nn.Conv2d(2, 2, 3, padding=1)
    step = wrap(lambda x: conv(x).sum((2, 3)))
    for n in range(4):
        x = ramp(lib, 2, 2, 4, 4, scale=0.01 * (n + 1))
        yield step(x.contiguous(memory_format=lib.channels_last) if n % 2 else x)


@case
def flipped_and_rolled(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: (x.flip(0), x.roll(1, 0), x.t().reshape(-1)))
    for n in range(4):
        x = ramp(lib, 3, 2, start=float(n))
        yield step(x if n % 2 else ramp(lib, 2, 3).t())


@case
def as_strided_windows(lib: Any, wrap: Any) -> Seen:
    step = wrap(lambda x: x.as_strided((3, 2), (1, 1)).sum(1))
    for n in range(4):
        yield step(ramp(lib, 4, start=float(n)))


@case
def as_strided_of_a_slice(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.as_strided((2, 2), (2, 1)).add_(1)
        return x * 1

    step = wrap(step)
    for n in range(4):
        base = ramp(lib, 8)
        yield step(base[n:])
        yield base


@case
def negative_view_through_movedim(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x.movedim(0, -1)[..., 0].mul_(3)
        return x.flatten(1)

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 2, 2, 3) if n % 2 else ramp(lib, 3, 2, 2).permute(1, 2, 0)
        yield step(x), x


@case
def a_write_through_two_views(lib: Any, wrap: Any) -> Seen:
    def step(x):
        x[0].add_(1)
        x[:, 1].mul_(2)
        x.t()[2].zero_()
        return x.sum(0)

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 2, 3) if n % 2 else ramp(lib, 3, 2).t()
        yield step(x), x


@case
def unbind_and_write(lib: Any, wrap: Any) -> Seen:
    def step(x):
        first, *rest = x.unbind(1)
        first.copy_(sum(rest))
        return x

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 3, 3, start=float(n))
        step(x.t() if n % 2 else x)
        yield x


@case
def split_and_swap(lib: Any, wrap: Any) -> Seen:
    def step(x):
        a, b = x.split(2, 0)
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)

    step = wrap(step)
    for n in range(4):
        x = ramp(lib, 4, 2) if n % 2 else ramp(lib, 2, 4).t()
        step(x)
        yield x


@case
def squeezed_shapes_with_odd_strides(lib: Any, wrap: Any) -> Seen:
    def step(x):
        y = x.squeeze(1).unsqueeze(0)
        y.add_(1)
        return y.shape[0], y

    step = wrap(step)
    for n in range(4):
        base = ramp(lib, 6)
        yield step(base[: n + 2].unsqueeze(1)), base


@case
def the_gradient_of_a_strided_leaf(lib: Any, wrap: Any) -> Seen:
    w = leaf(lib, 1.0, 2.0, 3.0, 4.0)
    step = wrap(lambda x, part: (part * x).sum().backward())
    for n in range(5):
        step(ramp(lib, 2, start=float(n)), w[::2] if n % 2 else w[1:3])
        yield w.grad


@case
def matrix_products_of_slices(lib: Any, wrap: Any) -> Seen:
    model = layer(lib)
    step = wrap(lambda x: model(x))
    for n in range(5):
        wide = batch(lib, n, 4, 6)
        yield step(wide[:, :3]), step(wide[:, ::2]), step(wide[:3].t()[:3].t())
