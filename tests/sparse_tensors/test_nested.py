"""Ragged tensors, in the jagged and in the strided layout."""

from __future__ import annotations

import copy
import pickle
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from twins import assert_same, quietly, refuse

from .layouts import _array as array_of

LENGTHS = (3, 1, 2)


def examples(ns: Any, width: int = 4) -> list[Any]:
    """Matrices of float64 with different numbers of rows."""
    made, start = [], 0
    for length in LENGTHS:
        flat = ns.arange(start, start + length * width, dtype=ns.float64)
        made.append((flat / 5).sin().reshape(length, width))
        start += length * width
    return made


def ragged(ns: Any, **options: Any) -> Any:
    return ns.nested.nested_tensor(examples(ns), layout=ns.jagged, **options)


def strided(ns: Any, **options: Any) -> Any:
    return ns.nested.nested_tensor(examples(ns), **options)


def read(value: Any) -> Any:
    """A result as arrays and words: ragged tensors as their examples."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "numel"):
        return tuple(read(v) for v in value)
    if not hasattr(value, "layout"):
        return value
    kind = str(value.dtype).rpartition(".")[2]
    if not value.is_nested:
        return kind, array_of(value)
    layout = str(value.layout).rpartition(".")[2]
    return layout, kind, tuple(array_of(example) for example in value.unbind())


def agree(program: Any, torch: ModuleType, tolerance: float = 1e-12) -> None:
    assert_same(read(program(evergrad)), read(quietly(program, torch)), tolerance)


def same_offsets(ns: Any, x: Any) -> Any:
    return ns.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets())


def weight(ns: Any) -> Any:
    return (ns.arange(12, dtype=ns.float64).reshape(3, 4) / 7).cos()


CALLS: dict[str, Any] = {
    "itself": lambda ns, x: x,
    "values": lambda ns, x: (x.values(), x.offsets(), x.lengths()),
    "facts": lambda ns, x: (x.ndim, len(x), x.is_nested, x.numel(), x.size(0), x.size(-1)),
    "unbind": lambda ns, x: x.unbind(),
    "list": lambda ns, x: list(x),
    "example": lambda ns, x: (x[0], x[-1], x[0, 1], x[2, 1, 3]),
    "padded": lambda ns, x: ns.nested.to_padded_tensor(x, 0.5),
    "padded more": lambda ns, x: x.to_padded_tensor(-1.0, (3, 5, 4)),
    "plus itself": lambda ns, x: x + x,
    "plus other": lambda ns, x: x - same_offsets(ns, x),
    "plus number": lambda ns, x: 1 + x,
    "plus row": lambda ns, x: x + weight(ns)[0],
    "row minus": lambda ns, x: weight(ns)[0] - x,
    "times each": lambda ns, x: x * weight(ns).reshape(3, 1, 4),
    "times padded": lambda ns, x: x * ns.ones(3, 3, 4).double().cumsum(1),
    "exp": lambda ns, x: x.exp(),
    "relu": lambda ns, x: ns.relu(x),
    "gelu": lambda ns, x: ns.nn.functional.gelu(x),
    "greater": lambda ns, x: x > 0,
    "where": lambda ns, x: ns.where(x > 0, x, x * 2),
    "neg": lambda ns, x: -x,
    "clone": lambda ns, x: x.clone(),
    "float": lambda ns, x: x.float(),
    "linear": lambda ns, x: ns.nn.functional.linear(x, weight(ns), weight(ns)[:, 0]),
    "matmul": lambda ns, x: x @ weight(ns).t(),
    "batched matmul": lambda ns, x: x @ weight(ns).reshape(3, 4, 1),
    "sum": lambda ns, x: x.sum(),
    "sum 1": lambda ns, x: x.sum(1),
    "sum 1 keepdim": lambda ns, x: x.sum(1, keepdim=True),
    "sum -1": lambda ns, x: x.sum(-1),
    "sum 0, 1": lambda ns, x: x.sum((0, 1)),
    "mean": lambda ns, x: x.mean(),
    "mean 1": lambda ns, x: x.mean(1),
    "mean -1": lambda ns, x: x.mean(-1, keepdim=True),
    "amax 1": lambda ns, x: x.amax(1),
    "softmax -1": lambda ns, x: ns.softmax(x, -1),
    "softmax 1": lambda ns, x: ns.softmax(x, 1),
    "log_softmax": lambda ns, x: ns.nn.functional.log_softmax(x, -1),
    "layer_norm": lambda ns, x: ns.nn.functional.layer_norm(x, (4,), weight(ns)[0], weight(ns)[1]),
    "transpose": lambda ns, x: x.transpose(1, 2).transpose(1, 2),
    "unsqueeze": lambda ns, x: x.unsqueeze(-1),
    "view": lambda ns, x: x.view(3, -1, 2, 2),
    "unflatten": lambda ns, x: x.unflatten(-1, (2, 2)),
    "flatten": lambda ns, x: x.unflatten(-1, (2, 2)).flatten(-2, -1),
    "chunk": lambda ns, x: x.chunk(2, -1),
    "split": lambda ns, x: x.split([1, 3], -1),
    "cat": lambda ns, x: ns.cat([x, x * 2], -1),
    "squeeze": lambda ns, x: x.unsqueeze(2).squeeze(2),
    "expand": lambda ns, x: x.unsqueeze(2).expand(3, x.size(1), 5, 4),
    "chunk 0": lambda ns, x: x.chunk(2, 0),
    "argmax": lambda ns, x: (x.argmax(-1), x.argmin(2, keepdim=True), x.argmax(1)),
    "max": lambda ns, x: [*x.max(-1), *x.min(1), *x.max(2, keepdim=True)],
    "products over the ragged dimension": lambda ns, x: x.transpose(1, 2) @ x,
    "zeros_like": lambda ns, x: ns.zeros_like(x),
    "ones_like": lambda ns, x: ns.ones_like(x),
    "dropout off": lambda ns, x: ns.nn.functional.dropout(x, 0.5, training=False),
    "add_": lambda ns, x: x.clone().add_(1),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_in_torch(name: str, torch: ModuleType) -> None:
    agree(lambda ns: CALLS[name](ns, ragged(ns)), torch)


def sizes(shape: Any) -> list[str]:
    return [re.sub(r"j\d+", "j", str(n)) for n in shape]


@pytest.mark.parametrize(
    "call",
    [
        lambda ns, x: x,
        lambda ns, x: x.transpose(1, 2),
        lambda ns, x: x.unsqueeze(1),
        lambda ns, x: ns.nn.functional.linear(x, weight(ns)),
        lambda ns, x: x.sum(-1),
        lambda ns, x: x.view(3, -1, 2, 2).transpose(1, 2),
    ],
)
def test_shape_and_text(call: Any, torch: ModuleType) -> None:
    ours, theirs = call(evergrad, ragged(evergrad)), call(torch, ragged(torch))
    assert sizes(ours.shape) == sizes(theirs.shape)
    assert re.sub(r"j\d+", "j", repr(ours)) == re.sub(r"j\d+", "j", repr(theirs))


CONSTRUCTIONS: dict[str, Any] = {
    "numbers": lambda ns: ns.nested.nested_tensor([[1, 2], [3]], layout=ns.jagged),
    "last dimension": lambda ns: ns.nested.nested_tensor(
        [ns.ones(2, 3), ns.ones(2, 4)], layout=ns.jagged
    ),
    "equal": lambda ns: ns.nested.as_nested_tensor(ns.ones(2, 3, 4), layout=ns.jagged),
    "dtype": lambda ns: ns.nested.nested_tensor([[1, 2], [3]], layout=ns.jagged, dtype=ns.float64),
    "offsets": lambda ns: ns.nested.nested_tensor_from_jagged(
        ns.arange(10.0).reshape(5, 2), ns.tensor([0, 2, 5])
    ),
    "lengths": lambda ns: ns.nested.nested_tensor_from_jagged(
        ns.arange(10.0).reshape(5, 2), lengths=ns.tensor([2, 3])
    ),
    "both": lambda ns: ns.nested.nested_tensor_from_jagged(
        ns.arange(10.0).reshape(5, 2), ns.tensor([0, 2, 5]), lengths=ns.tensor([1, 2])
    ),
    "jagged_dim": lambda ns: ns.nested.nested_tensor_from_jagged(
        ns.arange(10.0).reshape(2, 5), ns.tensor([0, 2, 5]), jagged_dim=2
    ),
    "narrow": lambda ns: ns.nested.narrow(
        ns.arange(12.0).reshape(2, 6), 1, ns.tensor([0, 1]), ns.tensor([2, 3]), layout=ns.jagged
    ),
    "masked_select": lambda ns: ns.nested.masked_select(
        ns.arange(6.0).reshape(2, 3), ns.tensor([[True, False, True], [False, True, False]])
    ),
    "strided": lambda ns: ns.nested.nested_tensor([ns.ones(2, 3), ns.ones(4, 5)]),
    "strided numbers": lambda ns: ns.nested.nested_tensor([[1, 2], [3]]),
    "strided equal": lambda ns: ns.nested.as_nested_tensor(ns.ones(2, 3, 4)),
    "embedding": lambda ns: ns.nn.functional.embedding(
        ns.nested.nested_tensor([[1, 2], [0]], layout=ns.jagged), weight(ns)
    ),
}


@pytest.mark.parametrize("name", CONSTRUCTIONS)
def test_constructing(name: str, torch: ModuleType) -> None:
    agree(CONSTRUCTIONS[name], torch)


REFUSED: dict[str, Any] = {
    "no parts": lambda ns: ns.nested.nested_tensor_from_jagged(ns.ones(3)),
    "two ragged": lambda ns: ns.nested.nested_tensor(
        [ns.ones(2, 3), ns.ones(3, 2)], layout=ns.jagged
    ),
    "none": lambda ns: ns.nested.nested_tensor([], layout=ns.jagged),
    "a tensor": lambda ns: ns.nested.nested_tensor(ns.ones(2, 2)),
    "other offsets": lambda ns: ragged(ns) + ragged(ns),
    "sum 0": lambda ns: ragged(ns).sum(0),
    "sum 1, 2": lambda ns: ragged(ns).sum((1, 2)),
    "matmul transposed": lambda ns: ragged(ns) @ ragged(ns).transpose(1, 2),
    "truth": lambda ns: bool(ragged(ns)),
    "item": lambda ns: ragged(ns).item(),
    "small padding": lambda ns: strided(ns).to_padded_tensor(0.0, (3, 2, 4)),
    "strided shape": lambda ns: strided(ns).shape,
    "strided size": lambda ns: strided(ns).size(1),
    "strided plus dense": lambda ns: strided(ns) + ns.ones(3, 1, 4),
}


def attention(ns: Any, **options: Any) -> Any:
    heads = ragged(ns).unflatten(-1, (2, 2)).transpose(1, 2)
    return ns.nn.functional.scaled_dot_product_attention(heads, heads, heads, **options)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, torch: ModuleType) -> None:
    refuse(REFUSED[name], torch)


def test_what_has_no_ragged_form_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"'cumsum'.*NestedTensorCPU"):
        ragged(evergrad).cumsum(1)
    with pytest.raises(RuntimeError, match="to_padded_tensor"):
        ragged(evergrad).to_dense()
    with pytest.raises(RuntimeError, match="offsets must grow"):
        evergrad.nested.nested_tensor_from_jagged(evergrad.ones(3), evergrad.tensor([0, 2, 5]))


STRIDED_CALLS: dict[str, Any] = {
    "itself": lambda ns, x: x,
    "facts": lambda ns, x: (x.dim(), x.size(0), x.size(2), x.is_nested, len(x.unbind())),
    "unbind": lambda ns, x: x.unbind(),
    "example": lambda ns, x: x[1],
    "values": lambda ns, x: x.values(),
    "plus": lambda ns, x: x + x,
    "plus number": lambda ns, x: x + 1,
    "times": lambda ns, x: x * x,
    "minus": lambda ns, x: x - x,
    "relu": lambda ns, x: x.relu(),
    "padded": lambda ns, x: ns.nested.to_padded_tensor(x, 0.5),
    "padded more": lambda ns, x: x.to_padded_tensor(0.5, (3, 5, 6)),
    "linear": lambda ns, x: ns.nn.functional.linear(x, weight(ns), weight(ns)[:, 0]),
    "matmul": lambda ns, x: ns.matmul(x, x.transpose(1, 2)),
    "softmax": lambda ns, x: x.softmax(-1),
    "sum": lambda ns, x: x.sum(-1, keepdim=True),
}


@pytest.mark.parametrize("name", STRIDED_CALLS)
def test_strided_as_in_torch(name: str, torch: ModuleType) -> None:
    agree(lambda ns: STRIDED_CALLS[name](ns, strided(ns)), torch)


def test_strided_text(torch: ModuleType) -> None:
    for make in (strided, lambda ns: ns.nested.nested_tensor([[1, 2], [3]])):
        ours = repr(make(evergrad)).replace("evergrad.", "torch.")
        assert ours == repr(make(torch))


# -- gradients ----------------------------------------------------------------------------------

# A loss of a ragged tensor, and the same of one example (with its number).
LOSSES: dict[str, Any] = {
    "squares": (lambda ns, x: (x * x).sum(), lambda ns, x, i: (x * x).sum()),
    "linear": (
        lambda ns, x: ns.nn.functional.linear(x, weight(ns)).sin().sum(),
        lambda ns, x, i: ns.nn.functional.linear(x, weight(ns)).sin().sum(),
    ),
    "sum 1": (lambda ns, x: (x.sum(1) ** 2).sum(), lambda ns, x, i: (x.sum(0) ** 2).sum()),
    "mean 1": (lambda ns, x: (x.mean(1) ** 2).sum(), lambda ns, x, i: (x.mean(0) ** 2).sum()),
    "amax 1": (lambda ns, x: (x.amax(1) ** 2).sum(), lambda ns, x, i: (x.amax(0) ** 2).sum()),
    "softmax": (
        lambda ns, x: (ns.softmax(x, -1) ** 2).sum(),
        lambda ns, x, i: (ns.softmax(x, -1) ** 2).sum(),
    ),
    "softmax 1": (
        lambda ns, x: (ns.softmax(x, 1) ** 2).sum(),
        lambda ns, x, i: (ns.softmax(x, 0) ** 2).sum(),
    ),
    "padded": (
        lambda ns, x: (x.to_padded_tensor(2.0) ** 2).sum(),
        lambda ns, x, i: (x**2).sum(),
    ),
    "unbind": (
        lambda ns, x: sum((part**2).sum() * i for i, part in enumerate(x.unbind())),
        lambda ns, x, i: (x**2).sum() * i,
    ),
    "values": (lambda ns, x: (x.values() ** 3).sum(), lambda ns, x, i: (x**3).sum()),
    "times each": (
        lambda ns, x: (x * weight(ns).reshape(3, 1, 4)).exp().sum(),
        lambda ns, x, i: (x * weight(ns)[i]).exp().sum(),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str, torch: ModuleType) -> None:
    """PyTorch lacks some of these gradients, so its dense examples are the reference."""
    of_all, of_one = LOSSES[name]
    leaf = ragged(evergrad, requires_grad=True)
    of_all(evergrad, leaf).backward()
    parts = [part.requires_grad_() for part in examples(evergrad)]
    nested = evergrad.nested.as_nested_tensor(parts, layout=evergrad.jagged)
    of_all(evergrad, nested).backward()
    theirs = [part.requires_grad_() for part in examples(torch)]
    sum(of_one(torch, part, i) for i, part in enumerate(theirs)).backward()
    expected = read([part.grad for part in theirs])
    assert_same(read([part.grad for part in parts]), expected, 1e-12)
    assert_same(read(list(leaf.grad.unbind())), expected, 1e-12)
    assert leaf.is_leaf and not nested.is_leaf and leaf.grad.shape == leaf.shape


def test_gradients_of_strided(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        parts = [part.requires_grad_() for part in examples(ns)]
        nested = ns.nested.as_nested_tensor(parts)
        ns.nested.to_padded_tensor(nested * nested, 0.0).sum().backward()
        return [part.grad for part in parts], nested.requires_grad

    agree(program, torch)


def test_layers_and_their_gradients(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        layer = ns.nn.Linear(4, 3, dtype=ns.float64)
        with ns.no_grad():
            layer.weight.copy_(weight(ns))
            layer.bias.copy_(weight(ns)[:, 0])
        out = layer(ragged(ns))
        (out.relu() ** 2).sum().backward()
        return out, layer.weight.grad, layer.bias.grad

    agree(program, torch)


def test_attention(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        parts = [part.requires_grad_() for part in examples(ns)]
        x = ns.nested.as_nested_tensor(parts, layout=ns.jagged)
        q, k = (y.unflatten(-1, (2, 2)).transpose(1, 2) for y in (x, x * 2))
        out = ns.nn.functional.scaled_dot_product_attention(q, k, q).transpose(1, 2)
        (out.flatten(-2, -1) ** 2).sum().backward()
        return out, [part.grad for part in parts]

    def by_example(ns: Any) -> Any:
        parts = [part.requires_grad_() for part in examples(ns)]
        total, outs = 0, []
        for part in parts:
            q = part.unflatten(-1, (2, 2)).transpose(0, 1)
            out = ns.nn.functional.scaled_dot_product_attention(q, q * 2, q).transpose(0, 1)
            outs.append(out)
            total = total + (out**2).sum()
        total.backward()
        return outs, [part.grad for part in parts]

    (_, _, ours), ours_grads = read(program(evergrad))
    theirs, theirs_grads = read(by_example(torch))
    assert_same(ours, tuple(array for _, array in theirs), 1e-9)
    assert_same(ours_grads, theirs_grads, 1e-9)


def test_gradients_through_choices_and_products() -> None:
    x = ragged(evergrad)
    offsets = x.offsets()

    def value(values: Any) -> Any:
        y = evergrad.nested.nested_tensor_from_jagged(values, offsets)
        gram = y.transpose(1, 2) @ y
        wide = y.unsqueeze(2).expand(-1, -1, 2, -1).values()
        chosen = y.max(-1).values.values().sum() + y.min(1).values.sum()
        return gram.sum() + wide.square().sum() + chosen + y.chunk(2, 0)[1].values().exp().sum()

    values = x.values().detach().requires_grad_()
    assert evergrad.autograd.gradcheck(value, (values,))
    assert evergrad.autograd.gradcheck(
        lambda v: evergrad.softmax(
            evergrad.nested.nested_tensor_from_jagged(v, offsets), 1
        ).values().square().sum(), (values,)
    )  # fmt: skip


def test_singleton_dimensions_before_the_ragged_one() -> None:
    x = ragged(evergrad)
    again = x.unsqueeze(1).squeeze(1)
    assert again.shape == x.shape and [p.tolist() for p in again] == [p.tolist() for p in x]


def test_choices_among_nothing_are_refused() -> None:
    parts = [evergrad.ones(2, 3), evergrad.ones(0, 3)]
    x = evergrad.nested.nested_tensor(parts, layout=evergrad.jagged)
    for choose in (evergrad.argmax, evergrad.argmin, evergrad.max, evergrad.min):
        with pytest.raises(IndexError, match="non-zero size"):
            choose(x, 1)
        assert choose(x, -1) is not None


def test_second_derivatives() -> None:
    def function(*parts: Any) -> Any:
        x = evergrad.nested.as_nested_tensor(list(parts), layout=evergrad.jagged)
        return (x * x.sum(-1, keepdim=True)).mean(1), x.exp().to_padded_tensor(0.0)

    parts = [part.requires_grad_() for part in examples(evergrad, 2)]
    assert evergrad.autograd.gradcheck(function, parts)
    assert evergrad.autograd.gradgradcheck(function, parts)


def test_gaps_are_left_out() -> None:
    values = evergrad.arange(10.0).reshape(5, 2)
    x = evergrad.nested.nested_tensor_from_jagged(
        values, evergrad.tensor([0, 2, 5]), lengths=evergrad.tensor([1, 2])
    )
    assert x.sum(1).tolist() == [[0.0, 1.0], [10.0, 12.0]]
    assert x.sum().item() == 23.0 and x.mean(1).tolist() == [[0.0, 1.0], [5.0, 6.0]]
    assert x.to_padded_tensor(9.0)[0].tolist() == [[0.0, 1.0], [9.0, 9.0]]


def test_padding_into_a_given_tensor() -> None:
    out = evergrad.empty(3, 3, 4, dtype=evergrad.float64)
    assert evergrad.nested.to_padded_tensor(ragged(evergrad), 0.5, out=out) is out
    np.testing.assert_array_equal(out.numpy(), ragged(evergrad).to_padded_tensor(0.5).numpy())


@pytest.mark.parametrize("how", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
@pytest.mark.parametrize("make", [ragged, strided])
def test_copies(make: Any, how: Any) -> None:
    source = make(evergrad, requires_grad=True)
    made = how(source)
    assert made is not source and made.requires_grad and made.is_leaf
    np.testing.assert_array_equal(made.detach().values().numpy(), source.detach().values().numpy())


def test_an_optimizer_can_train_a_ragged_leaf() -> None:
    leaf = ragged(evergrad, requires_grad=True)
    (leaf * leaf).sum().backward()
    with evergrad.no_grad():
        leaf.sub_(leaf.grad * 0.5)
    assert leaf.values().abs().max().item() < 1e-12 and leaf.is_leaf and leaf.requires_grad


@pytest.mark.parametrize("name", ["rand_like", "randn_like", "randint_like"])
def test_draws_like_a_nested_tensor(name: str, torch: ModuleType) -> None:
    """PyTorch's numbers, with the offsets of the tensor, so that the two go together."""
    further = (9,) if name == "randint_like" else ()

    def program(ns: Any) -> Any:
        x = ns.nested.nested_tensor([ns.ones(2, 3), ns.ones(4, 3)], layout=ns.jagged)
        ns.manual_seed(7)
        drawn = getattr(ns, name)(x, *further)
        return drawn.values(), (x + drawn).values(), [tuple(part.shape) for part in drawn.unbind()]

    agree(program, torch, tolerance=1e-6)
    with pytest.raises(NotImplementedError):
        getattr(evergrad, name)(evergrad.eye(2).to_sparse(), *further)
