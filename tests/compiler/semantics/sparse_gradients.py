"""Gradients of sparse embeddings: used up, left behind, read and accumulated."""

from __future__ import annotations

from typing import Any

from .registry import Seen, case, ramp


def table(lib: Any, rows: int = 6, width: int = 3, **options: Any) -> Any:
    made = lib.nn.Embedding(rows, width, sparse=True, **options)
    with lib.no_grad():
        made.weight.copy_(ramp(lib, rows, width))
    return made


def numbers(lib: Any, n: int) -> Any:
    """Rows of call ``n``, some of them twice."""
    return lib.tensor([[n % 6, 2], [(n + 3) % 6, 2]])


def seen(embedding: Any) -> Any:
    """The weight, its gradient, and whether that is sparse, with how many elements."""
    grad = embedding.weight.grad
    if grad is None:
        return embedding.weight, None
    count = grad._nnz() if grad.is_sparse else None
    return embedding.weight, grad, grad.is_sparse, count


def trained(lib: Any, wrap: Any, optimizer_of: Any, last: bool = False, **options: Any) -> Seen:
    """Steps that clear the gradient first, which they leave behind, or last."""
    embedding = table(lib, **options)
    optimizer = optimizer_of(lib.optim, list(embedding.parameters()))

    def step(index):
        if not last:
            optimizer.zero_grad()
        loss = (embedding(index) * ramp(lib, 2, 2, 3)).square().mean()
        loss.backward()
        optimizer.step()
        if last:
            optimizer.zero_grad()
        return loss.detach()

    step = wrap(step)
    for n in range(6):
        yield step(numbers(lib, n)), seen(embedding)


@case(torch=False)  # where the gradient is on the memory of the argument
def the_argument_is_written_later(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)

    def step(index):
        embedding.weight.grad = None
        embedding(index).sin().sum().backward()

    step = wrap(step)
    for n in range(5):
        index = numbers(lib, n)
        step(index)
        index.fill_(0)
        yield seen(embedding)


@case
def left_behind_by_sgd(lib: Any, wrap: Any) -> Seen:
    yield from trained(lib, wrap, lambda optim, p: optim.SGD(p, lr=0.1))


@case
def left_behind_by_sparse_adam(lib: Any, wrap: Any) -> Seen:
    yield from trained(lib, wrap, lambda optim, p: optim.SparseAdam(p, lr=0.1))


@case
def left_behind_by_adagrad(lib: Any, wrap: Any) -> Seen:
    yield from trained(lib, wrap, lambda optim, p: optim.Adagrad(p, lr=0.1))


@case
def used_up(lib: Any, wrap: Any) -> Seen:
    yield from trained(lib, wrap, lambda optim, p: optim.SparseAdam(p, lr=0.1), last=True)


@case
def with_padding(lib: Any, wrap: Any) -> Seen:
    yield from trained(lib, wrap, lambda optim, p: optim.SGD(p, lr=0.1), padding_idx=2)


@case
def two_lookups(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)
    optimizer = lib.optim.SGD(embedding.parameters(), lr=0.1)

    def step(a, b):
        optimizer.zero_grad()
        loss = (embedding(a).sum(1) * embedding(b).mean(1)).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        yield step(numbers(lib, n), numbers(lib, n + 1)), embedding.weight
        yield embedding.weight.grad.to_dense()


@case
def without_an_optimizer(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)

    def step(index):
        embedding.zero_grad()
        embedding(index).sin().sum().backward()

    step = wrap(step)
    for n in range(5):
        step(numbers(lib, n))
        yield seen(embedding)
        with lib.no_grad():
            embedding.weight.add_(embedding.weight.grad.to_dense(), alpha=-0.1)


@case
def accumulated_over_calls(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)

    def step(index):
        embedding(index).sin().sum().backward()

    step = wrap(step)
    for n in range(6):
        step(numbers(lib, n))
        yield embedding.weight.grad.to_dense(), embedding.weight.grad.is_sparse
        if n == 3:
            embedding.weight.grad = None


@case
def read_by_the_step(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)

    def step(index):
        embedding.weight.grad = None
        embedding(index).square().sum().backward()
        grad = embedding.weight.grad
        return grad.is_sparse, grad.coalesce().values() * 1

    step = wrap(step)
    for n in range(6):
        yield step(numbers(lib, n)), seen(embedding)


@case
def read_and_used_up(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)
    optimizer = lib.optim.SGD(embedding.parameters(), lr=0.1)

    def step(index):
        embedding(index).square().sum().backward()
        norm = embedding.weight.grad.coalesce().values().norm()
        optimizer.step()
        optimizer.zero_grad()
        return norm

    step = wrap(step)
    for n in range(6):
        yield step(numbers(lib, n)), embedding.weight


@case
def a_dense_use_of_the_weight(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)

    def step(index):
        embedding.weight.grad = None
        (embedding(index) @ embedding.weight.t()).sum().backward()

    step = wrap(step)
    for n in range(5):
        step(numbers(lib, n))
        grad = embedding.weight.grad
        yield grad.to_dense() if grad.is_sparse else grad, grad.is_sparse


@case
def a_dense_layer_beside_it(lib: Any, wrap: Any) -> Seen:
    embedding, head = table(lib), lib.nn.Linear(3, 1)
    with lib.no_grad():
        head.weight.copy_(ramp(lib, 1, 3))
        head.bias.zero_()
    sparse = lib.optim.SparseAdam(list(embedding.parameters()), lr=0.1)
    dense = lib.optim.Adam(head.parameters(), lr=0.1)

    def step(index):
        sparse.zero_grad()
        dense.zero_grad()
        loss = head(embedding(index)).square().mean()
        loss.backward()
        sparse.step()
        dense.step()
        return loss.item()

    step = wrap(step)
    for n in range(6):
        yield step(numbers(lib, n)), seen(embedding), head.weight, head.weight.grad


@case
def a_number_is_read_between(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)
    optimizer = lib.optim.SGD(embedding.parameters(), lr=0.1)

    def step(index):
        optimizer.zero_grad()
        loss = embedding(index).square().mean()
        loss.backward()
        text = str(loss)[:8]
        optimizer.step()
        return text

    step = wrap(step)
    for n in range(5):
        yield step(numbers(lib, n)), seen(embedding)


@case
def skipped_where_the_loss_is_small(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)
    optimizer = lib.optim.SparseAdam(list(embedding.parameters()), lr=0.1)

    def step(index):
        optimizer.zero_grad()
        loss = embedding(index).square().mean()
        loss.backward()
        if loss > 0.1:
            optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(8):
        yield step(numbers(lib, n)), seen(embedding)


@case
def cleared_after_the_forward_pass(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)
    optimizer = lib.optim.SGD(embedding.parameters(), lr=0.1)

    def step(index):
        loss = embedding(index).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for n in range(5):
        yield step(numbers(lib, n)), seen(embedding)


@case
def two_backward_passes(lib: Any, wrap: Any) -> Seen:
    embedding = table(lib)
    optimizer = lib.optim.SGD(embedding.parameters(), lr=0.1)

    def step(a, b):
        optimizer.zero_grad()
        embedding(a).square().mean().backward()
        embedding(b).sin().mean().backward()
        optimizer.step()

    step = wrap(step)
    for n in range(5):
        step(numbers(lib, n), numbers(lib, n + 1))
        yield embedding.weight, embedding.weight.grad.to_dense(), embedding.weight.grad.is_sparse


@case
def a_bag(lib: Any, wrap: Any) -> Seen:
    bag = lib.nn.EmbeddingBag(6, 3, mode="sum", sparse=True)
    with lib.no_grad():
        bag.weight.copy_(ramp(lib, 6, 3))

    def step(index):
        bag.weight.grad = None
        bag(index).square().sum().backward()

    step = wrap(step)
    for n in range(5):
        step(numbers(lib, n))
        yield bag.weight.grad.to_dense(), bag.weight.grad.is_sparse
