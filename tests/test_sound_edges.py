"""Derivatives that were lost, states that were shared, and what is refused as PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad as eg

# -- derivatives --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
def test_vjp_differentiated_by_its_cotangent(torch: ModuleType) -> None:
    """It is linear in the cotangent: the derivative was 0."""

    def program(ns: Any) -> list[Any]:
        x, one = ns.tensor([1.0, 2.0]), ns.tensor([1.0, 3.0])

        def both(x: Any) -> Any:
            return ns.func.vjp(lambda x: (x**2, x**3), x)[1]

        def pulled(ct: Any, x: Any = x) -> Any:
            return ns.func.vjp(lambda x: ns.sin(x) * x, x)[1](ct)[0]

        return [
            ns.func.grad(lambda ct: pulled(ct).sum())(one),
            ns.func.jacrev(pulled)(one),
            ns.func.jacfwd(pulled)(one),
            ns.func.hessian(lambda ct: (pulled(ct) ** 2).sum())(one),
            ns.func.grad(lambda x: pulled(one, x).sum())(x),
            ns.func.grad(lambda ct: both(x)((ct, ct))[0].sum())(one),
        ]  # fmt: skip

    for ours, theirs in zip(program(eg), program(torch), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-7)


OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "amsgrad": ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    "adamw": ("AdamW", {}),
    "adagrad": ("Adagrad", {}),
    "rmsprop": ("RMSprop", {"momentum": 0.5, "centered": True}),
    "adadelta": ("Adadelta", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "adamax": ("Adamax", {}),
    "asgd": ("ASGD", {}),
}


def _steps(p: Any, lr: Any, name: str, options: dict[str, Any]) -> Any:
    q = p.clone()
    optimizer = getattr(eg.optim, name)([q], lr=lr, differentiable=True, **options)
    for _ in range(3):
        q.grad = q.detach().clone() * p * 3 + p * p
        optimizer.step()
    return q


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_differentiable_steps(case: str) -> None:
    """The derivative of three steps by the start, against differences."""
    name, options = OPTIMIZERS[case]
    p = eg.tensor([1.0, 2.0], dtype=eg.float64).requires_grad_()
    (found,) = eg.autograd.grad(_steps(p, 0.1, name, options).sum(), p)
    h = 1e-6
    for i in range(2):
        # The gradients depend on q as a constant: so do the differences.
        ends = []
        for step in (h, -h):
            moved = p.detach().clone()
            moved[i] += step
            ends.append(_frozen(moved, p.detach(), name, options))
        difference = (ends[0] - ends[1]).sum().item() / (2 * h)
        assert found[i].item() == pytest.approx(difference, rel=1e-5, abs=1e-7)


def _frozen(moved: Any, p: Any, name: str, options: dict[str, Any]) -> Any:
    """The steps from a moved start, with the detached factors of the unmoved one."""
    q, factor = moved.clone(), p.clone()
    optimizer = getattr(eg.optim, name)([q], lr=0.1, **options)
    unmoved = getattr(eg.optim, name)([factor], lr=0.1, **options)
    for _ in range(3):
        now = factor.clone()
        q.grad = now * moved * 3 + moved * moved
        factor.grad = now * p * 3 + p * p
        optimizer.step()
        unmoved.step()
    return q


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_tensor_learning_rates_get_gradients(name: str, torch: ModuleType) -> None:
    results = []
    for ns in (eg, torch):
        lr = ns.tensor(0.1, dtype=ns.float64).requires_grad_()
        q = ns.tensor([1.0, 2.0], dtype=ns.float64).requires_grad_().clone()
        optimizer = getattr(ns.optim, name)([q], lr=lr, differentiable=True, foreach=False)
        for scale in (1.0, 2.0):
            q.grad = ns.tensor([3.0, 4.0], dtype=ns.float64) * scale
            optimizer.step()
        results.append(ns.autograd.grad(q.sum(), lr)[0].item())
    # PyTorch raises its betas to a step that is a float32.
    assert results[0] == pytest.approx(results[1], rel=2e-5)


def test_steps_that_are_not_differentiable_record_nothing() -> None:
    q = eg.ones(2).requires_grad_()
    q.grad = eg.ones(2)
    eg.optim.SGD([q], lr=eg.tensor(0.1).requires_grad_()).step()
    assert q.is_leaf and q.grad_fn is None


# -- random numbers, schedules, scalers ---------------------------------------------------------


def test_compiled_rrelu_draws_what_eager_does(torch: ModuleType) -> None:
    x = np.random.default_rng(0).standard_normal((4, 9)).astype(np.float32)

    def program(ns: Any, run: Any) -> list[Any]:
        ns.manual_seed(5)
        first = run(ns.tensor(x))
        return [first.tolist(), ns.rand(2).tolist()]

    def rrelu(ns: Any) -> Any:
        return lambda x: ns.nn.functional.rrelu(x, training=True)

    eager = program(eg, rrelu(eg))
    assert eager == program(eg, eg.compile(rrelu(eg)))
    for ours, theirs in zip(eager, program(torch, rrelu(torch)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("milestones", [[0], [0, 2], [1], [2, 3], [0, 0]])
def test_sequential_schedules(milestones: list[int], torch: ModuleType) -> None:
    results = []
    for ns in (eg, torch):
        optimizer = ns.optim.SGD([ns.nn.Parameter(ns.ones(1))], lr=1.0)
        s = ns.optim.lr_scheduler
        parts = [s.ConstantLR(optimizer, 0.1, total_iters=2), s.ExponentialLR(optimizer, 0.5),
                 s.StepLR(optimizer, 1, 0.1)][: len(milestones) + 1]  # fmt: skip
        schedule = s.SequentialLR(optimizer, parts, milestones=milestones)
        rates = []
        for _ in range(6):
            rates.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            schedule.step()
        results.append(rates)
    assert results[0] == pytest.approx(results[1])


def test_tensor_rates_are_not_shared() -> None:
    """What a schedule or a loaded state dict keeps does not change with later steps."""
    p = eg.nn.Parameter(eg.ones(2))
    optimizer = eg.optim.SGD([p], lr=eg.tensor(0.1))
    schedule = eg.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    kept = schedule.get_last_lr()[0]
    p.grad = eg.ones(2)
    optimizer.step()
    schedule.step()
    assert float(kept) == pytest.approx(0.1) and float(schedule.base_lrs[0]) == pytest.approx(0.1)
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.05)
    state = optimizer.state_dict()
    other = eg.optim.SGD([eg.nn.Parameter(eg.ones(2))], lr=eg.tensor(0.9))
    other.load_state_dict(state)
    other.param_groups[0]["lr"].fill_(7.0)
    assert float(state["param_groups"][0]["lr"]) == pytest.approx(0.05)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_optimizers_honour_found_inf(name: str, torch: ModuleType) -> None:
    results = []
    for ns in (eg, torch):
        p = ns.nn.Parameter(ns.ones(2))
        optimizer = getattr(ns.optim, name)([p], lr=0.1, fused=True)
        rows = []
        for found, scale in ((1.0, None), (0.0, None), (0.0, 4.0), (1.0, 4.0)):
            p.grad = ns.ones(2) * 8
            optimizer.grad_scale = None if scale is None else ns.tensor(scale)
            optimizer.found_inf = ns.tensor(found)
            optimizer.step()
            rows.append([*p.detach().tolist(), *(p.grad.tolist() if not found else ())])
        results.append(np.concatenate(rows))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


# -- layers at their edges ----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 2, 2)])
def test_batch_norm_learns_nothing_from_an_empty_batch(shape: tuple[int, ...]) -> None:
    layer = eg.nn.BatchNorm1d(3) if len(shape) == 2 else eg.nn.BatchNorm2d(3)
    out = layer(eg.empty(*shape))
    assert out.shape == shape
    assert layer.running_mean.tolist() == [0.0] * 3 and layer.running_var.tolist() == [1.0] * 3
    out.sum().backward()
    assert layer.weight.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("lengths", [((0, 0), (5, 5)), ((0, 2), (5, 4)), ((0, 1), (0, 5)),
                                     ((0, 0), (0, 0)), ((2, 1), (0, 5))])  # fmt: skip
def test_ctc_loss_of_length_zero(lengths: Any, reduction: str, torch: ModuleType) -> None:
    targets, frames = lengths
    logits = np.random.default_rng(0).standard_normal((5, 2, 4)).astype(np.float32)
    results = []
    for ns in (eg, torch):
        x = ns.tensor(logits).requires_grad_()
        loss = ns.nn.functional.ctc_loss(
            x.log_softmax(-1), ns.ones((2, max(*targets, 1)), dtype=ns.int64), ns.tensor(frames),
            ns.tensor(targets), reduction=reduction, zero_infinity=True,
        )  # fmt: skip
        grad = ns.autograd.grad(loss.sum(), x)[0]
        results.append((loss.detach().numpy(), grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_lp_pool_with_infinity_is_the_largest_magnitude(ceil_mode: bool, torch: ModuleType) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 9)).astype(np.float32)
    for rank, given in ((1, x[0]), (2, x)):
        found = [
            getattr(ns.nn.functional, f"lp_pool{rank}d")(
                ns.tensor(given), float("inf"), 2, ceil_mode=ceil_mode
            ).tolist()
            for ns in (eg, torch)
        ]
        assert found[0] == found[1]


def test_sparse_differences_are_in_the_type_of_the_result(torch: ModuleType) -> None:
    """The negative of an unsigned number wrapped around before it was cast."""
    for left in ("int8", "uint8", "int16", "int64", "float32"):
        for right in ("int8", "uint8", "int32", "float64"):
            found = []
            for ns in (eg, torch):
                a = ns.tensor([[0, 5], [3, 0]], dtype=getattr(ns, left))
                b = ns.tensor([[0, 7], [0, 2]], dtype=getattr(ns, right)).to_sparse()
                pair = [a.to_sparse() - b] + ([a - b] if left == "float32" else [])
                found.append([(str(r.dtype).split(".")[-1], r.to_dense().tolist()) for r in pair])
            assert found[0] == found[1], (left, right)
    with pytest.raises(RuntimeError, match="Subtraction"):
        eg.eye(2).to_sparse() - eg.eye(2).bool().to_sparse()


# -- views and memory formats -------------------------------------------------------------------

RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lambda ns, x: x.cumsum(0),
    "cumprod": lambda ns, x: x.cumprod(1),
    "logcumsumexp": lambda ns, x: x.logcumsumexp(0),
    "matrix-vector": lambda ns, x: x @ x[0],
    "stack-matrix": lambda ns, x: x[None] @ x.T,
    "addmv": lambda ns, x: ns.addmv(x[:, 0], x, x[0]),
    "kron": lambda ns, x: ns.kron(x, x),
    "repeat": lambda ns, x: x.repeat(2, 1),
    "tile": lambda ns, x: x.tile(2),
    "roll": lambda ns, x: x.roll(1),
    "group_norm": lambda ns, x: ns.nn.functional.group_norm(x, 2),
    "unfold": lambda ns, x: ns.nn.functional.unfold(x[None, None], 2),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_are_no_views(name: str, torch: ModuleType) -> None:
    function = RESULTS[name]
    x = np.random.default_rng(0).random((3, 4)).astype(np.float32)
    results = []
    for ns in (eg, torch):
        given = ns.tensor(x).requires_grad_()
        y = function(ns, given * 1)
        assert not y._is_view() and y._base is None
        if name not in ("cumprod", "logcumsumexp"):  # whose derivatives read the result
            y.mul_(2)
        (grad,) = ns.autograd.grad((y * y).sum(), given)
        results.append((y.detach().numpy(), grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)

    def step(x: Any) -> Any:
        return function(eg, x * 1).mul_(2).sum(), x.sum()

    eager = step(eg.tensor(x))
    compiled = eg.compile(step)(eg.tensor(x))
    np.testing.assert_allclose(compiled[0].item(), eager[0].item(), rtol=1e-5)


def test_channels_last_is_an_order_of_strides(torch: ModuleType) -> None:
    def program(ns: Any) -> list[Any]:
        last = ns.channels_last
        x = ns.arange(120.0).reshape(2, 3, 4, 5)
        y = x.contiguous(memory_format=last)
        nhwc = ns.zeros(2, 4, 5, 3).permute(0, 3, 1, 2)
        shapes = [ns.zeros(2, 1, 4, 5), ns.zeros(2, 3, 1, 1), ns.zeros(0, 3, 4, 5), ns.zeros(3, 4)]
        return [
            [t.is_contiguous() for t in (x, y, nhwc, *shapes)],
            [t.is_contiguous(memory_format=last) for t in (x, y, nhwc, *shapes)],
            y.stride(), y.tolist(), x.to(memory_format=last).stride(),
            y.contiguous().stride(), y.contiguous(memory_format=last).data_ptr() == y.data_ptr(),
            ns.zeros(2, 3, 2, 2, 2).contiguous(memory_format=ns.channels_last_3d).stride(),
        ]  # fmt: skip

    assert program(eg) == program(torch)
    with pytest.raises(RuntimeError, match="rank 4"):
        eg.zeros(3).contiguous(memory_format=eg.channels_last)


# -- what is refused ----------------------------------------------------------------------------

SPLITS: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda x: x.unbind(0),
    "iteration": lambda x: tuple(x),
    "split": lambda x: x.split(1),
    "split_with_sizes": lambda x: x.split_with_sizes([1, 2]),
    "chunk": lambda x: x.chunk(3),
    "tensor_split": lambda x: x.tensor_split(3),
    "unsafe_split": lambda x: x.unsafe_split(1),
    "select": lambda x: (x.select(0, 0),),
    "view of an unbound one": lambda x: (x.unbind(0)[0][1:],),
}


@pytest.mark.parametrize("name", SPLITS)
def test_writing_to_one_of_several_views(name: str, torch: ModuleType) -> None:
    def outcome(ns: Any, grad: bool, off: bool) -> str:
        x = ns.ones(3, 4)
        x = x.requires_grad_() * 1 if grad else x
        part = SPLITS[name](x)[0]
        try:
            with ns.set_grad_enabled(not off):
                part.mul_(2)
        except RuntimeError as refused:
            assert "view" in str(refused)
            return "refused"
        return str(x.sum().item())

    for grad in (False, True):
        for off in (False, True):
            assert outcome(eg, grad, off) == outcome(torch, grad, off)


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda ns, x: x.add_(1),
    "setitem": lambda ns, x: x.__setitem__(0, 1.0),
    "fill_": lambda ns, x: x.fill_(2.0),
    "copy_": lambda ns, x: x.copy_(ns.zeros(3)),
    "normal_": lambda ns, x: x.normal_().sum() * 0,
    "out": lambda ns, x: ns.add(x, 1, out=x),
    "view": lambda ns, x: x.view(3).add_(1),
    "requires_grad_": lambda ns, x: x.requires_grad_(),
    "saved": lambda ns, x: ns.ones(3, requires_grad=True) * x,
    "version": lambda ns, x: x._version,
    "added": lambda ns, x: ns.ones(3, requires_grad=True) + x,
    "clone": lambda ns, x: x.clone().add_(1),
    "detach": lambda ns, x: x.detach().add_(1),
    "is_inference": lambda ns, x: ns.tensor([x.is_inference(), x.clone().is_inference()]),
}


@pytest.mark.parametrize("name", WRITES)
def test_inference_tensors_outside_of_their_mode(name: str, torch: ModuleType) -> None:
    def outcome(ns: Any, no_grad: bool) -> Any:
        with ns.inference_mode():
            x = ns.ones(3)
            x.add_(1)
        try:
            with ns.set_grad_enabled(not no_grad):
                found = WRITES[name](ns, x)
        except RuntimeError as refused:
            assert "nference" in str(refused)
            return "refused"
        return None if found is None else found.tolist()

    for no_grad in (False, True):
        assert outcome(eg, no_grad) == outcome(torch, no_grad)


@pytest.mark.parametrize("cell", ["RNNCell", "LSTMCell", "GRUCell"])
def test_rnn_cells_broadcast_nothing(cell: str, torch: ModuleType) -> None:
    shapes = [((4, 3), (1, 5)), ((1, 3), (4, 5)), ((4, 3), (5,)), ((3,), (4, 5)), ((4, 3), (2, 5)),
              ((4, 3), (4, 5)), ((3,), (5,)), ((4, 2), (4, 5)), ((4, 3), (4, 6))]  # fmt: skip

    def outcome(ns: Any, x: Any, h: Any) -> Any:
        state = ns.zeros(*h)
        try:
            found = getattr(ns.nn, cell)(3, 5)(
                ns.zeros(*x), (state, state) if cell == "LSTMCell" else state
            )
        except RuntimeError:
            return "refused"
        return tuple((found[0] if cell == "LSTMCell" else found).shape)

    for x, h in shapes:
        assert outcome(eg, x, h) == outcome(torch, x, h), (x, h)
    with pytest.raises(RuntimeError, match="hidden1"):
        eg.nn.LSTMCell(3, 5)(eg.zeros(4, 3), (eg.zeros(4, 5), eg.zeros(1, 5)))


def test_group_norm_of_one_value_per_group(torch: ModuleType) -> None:
    for shape, groups in (((1, 3), 3), ((1, 4), 2), ((2, 3), 3), ((1, 3, 1, 1), 3), ((1, 3, 2), 3)):
        outcomes = []
        for ns in (eg, torch):
            try:
                found = ns.nn.functional.group_norm(ns.ones(*shape), groups)
                outcomes.append(tuple(found.shape))
            except ValueError as refused:
                outcomes.append(str(refused))
        assert outcomes[0] == outcomes[1]


OVERLAPS: dict[str, Callable[[Any, Any], Any]] = {
    "shifted": lambda ns, x: ns.add(x[:-1], 1, out=x[1:]),
    "second": lambda ns, x: ns.mul(x[1:], x[:-1], out=x[:-1]),
    "unary": lambda ns, x: ns.exp(x[:-1], out=x[1:]),
    "transposed": lambda ns, x: ns.add(x[:9].view(3, 3).T, 1, out=x[:9].view(3, 3)),
    "cumsum": lambda ns, x: ns.cumsum(x[:-1], 0, out=x[1:]),
    "where": lambda ns, x: ns.where(x[:-1] > 0, x[:-1], x[:-1], out=x[1:]),
    "cat": lambda ns, x: ns.cat([x[:2], x[2:4]], out=x[:4]),
    "stack": lambda ns, x: ns.stack([x[:2], x[:2]], out=x[:4].view(2, 2)),
    "gather": lambda ns, x: ns.gather(x[:3], 0, ns.tensor([0, 1, 2]), out=x[:3]),
    "index_select": lambda ns, x: ns.index_select(x[:3], 0, ns.tensor([0, 1]), out=x[1:3]),
    "same": lambda ns, x: ns.add(x, 1, out=x),
    "same of two": lambda ns, x: ns.mul(x, x, out=x),
    "apart": lambda ns, x: ns.add(x[:5], 1, out=x[5:]),
    "between": lambda ns, x: ns.add(x[::2], 1, out=x[1::2]),
    "other": lambda ns, x: ns.add(x, 1, out=ns.zeros(10)),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_out_that_overlaps_an_argument(name: str, torch: ModuleType) -> None:
    outcomes = []
    for ns in (eg, torch):
        x = ns.arange(10.0)
        try:
            OVERLAPS[name](ns, x)
        except RuntimeError as refused:
            assert "single memory location" in str(refused)
            assert x.tolist() == list(range(10))  # nothing was written
            outcomes.append("refused")
        else:
            outcomes.append(x.tolist())
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_refuses_negative_indices(mode: str) -> None:
    weight = eg.ones(3, 2)
    for bad in (-1, 3):
        with pytest.raises(RuntimeError, match=f"takes value {bad}"):
            eg.nn.functional.embedding_bag(eg.tensor([[0, bad, 1]]), weight, mode=mode)
        with pytest.raises(RuntimeError, match="Index 1 of input"):
            offsets = eg.tensor([0, 2])
            eg.nn.functional.embedding_bag(
                eg.tensor([0, bad, 1]), weight, offsets, mode=mode, padding_idx=0
            )
