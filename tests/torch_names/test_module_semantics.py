"""Modules, optimizers, files, loaders, types and indices in corner cases, as PyTorch has them."""

from __future__ import annotations

import copy
import io
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from .outcomes import Program, same

# -- type promotion -------------------------------------------------------------------------------

TYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
         "float64", "complex64", "complex128"]  # fmt: skip
BINARY = ["add", "mul", "div", "floor_divide", "remainder", "pow", "eq", "bitwise_and", "where",
          "fmod", "true_divide", "bitwise_xor", "ne", "lt"]  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_types_of_results(name: str, torch: ModuleType) -> None:
    """All pairs of types, as tensors, zero-dimensional tensors and Python's numbers."""

    def program(ns: Any) -> Any:
        found = []
        values = [ns.ones(shape, dtype=getattr(ns, t)) for t in TYPES for shape in ((2,), ())]
        for a in values[::2]:
            for b in (*values, True, 2, 2.0):
                if a.dtype is ns.float16 and any(b is v for v in (values[-1], values[-3])):
                    continue  # complex32, which is a storage type here
                try:
                    if name == "where":
                        result = ns.where(ns.tensor([True, False]), a, b)
                    else:
                        result = getattr(ns, name)(a, b)
                    found.append(str(result.dtype).partition(".")[2])
                except (RuntimeError, TypeError, NotImplementedError, ValueError):
                    found.append("refused")
        return found

    same(program, torch, with_warnings=False)


# -- indices --------------------------------------------------------------------------------------

INDICES = {
    "int": lambda ns: 1,
    "negative": lambda ns: -1,
    "out of range": lambda ns: 9,
    "slice": lambda ns: slice(1, None, 2),
    "negative step": lambda ns: slice(None, None, -1),
    "slice beyond": lambda ns: slice(2, 99),
    "empty slice": lambda ns: slice(3, 1),
    "ellipsis": lambda ns: (Ellipsis, 0),
    "two ellipses": lambda ns: (Ellipsis, 0, Ellipsis),
    "true": lambda ns: True,
    "list": lambda ns: [0, 2],
    "empty list": lambda ns: [],
    "list of bools": lambda ns: [True, False, True, False],
    "nested lists": lambda ns: [[0, 1], [1, 2]],
    "tuple of lists": lambda ns: ([0, 1], [1, 2]),
    "tensor": lambda ns: ns.tensor([2, 0]),
    "tensor int32": lambda ns: ns.tensor([2, 0], dtype=ns.int32),
    "tensor 2d": lambda ns: ns.tensor([[2, 0], [1, 1]]),
    "scalar tensor": lambda ns: ns.tensor(2),
    "float tensor": lambda ns: ns.tensor([1.0]),
    "float": lambda ns: 1.0,
    "mask": lambda ns: ns.tensor([True, False, True, False]),
    "mask of all": lambda ns: ns.arange(24).reshape(4, 3, 2) % 2 == 0,
    "mask of two": lambda ns: ns.arange(12).reshape(4, 3) % 2 == 0,
    "wrong mask": lambda ns: ns.tensor([True, False]),
    "mask and int": lambda ns: (ns.tensor([True, False, True, False]), 1),
    "two tensors": lambda ns: (ns.tensor([0, 1]), ns.tensor([1, 2])),
    "tensors apart": lambda ns: (ns.tensor([0, 1]), slice(None), ns.tensor([1, 0])),
    "broadcast": lambda ns: (ns.tensor([[0], [1]]), ns.tensor([1, 2])),
    "no broadcast": lambda ns: (ns.tensor([0, 1, 2]), ns.tensor([1, 2])),
    "slice and tensor": lambda ns: (slice(1, 3), ns.tensor([0, 2])),
    "array": lambda ns: np.array([1, 3]),
    "numpy int": lambda ns: np.int64(2),
    "range": lambda ns: range(2),
    "too many": lambda ns: (0, 0, 0, 0),
    "empty tuple": lambda ns: (),
    "negative tensor": lambda ns: ns.tensor([-1, -4]),
    "tensor out of range": lambda ns: ns.tensor([4]),
    "none and tensor": lambda ns: (None, ns.tensor([0, 1])),
    "ellipsis and mask": lambda ns: (Ellipsis, ns.tensor([True, False])),
}


@pytest.mark.parametrize("index", INDICES)
def test_indices(index: str, torch: ModuleType) -> None:
    """Read, written with a number and with a tensor, and the gradients of both."""

    def cube(ns: Any) -> Any:
        return ns.arange(24.0).reshape(4, 3, 2).clone()

    def read(ns: Any) -> Any:
        return cube(ns)[INDICES[index](ns)].detach().contiguous()

    def read_gradient(ns: Any) -> Any:
        x = cube(ns).requires_grad_()
        x[INDICES[index](ns)].pow(2).sum().backward()
        return x.grad

    def write(ns: Any) -> Any:
        x = cube(ns)
        x[INDICES[index](ns)] = -1
        return x

    def write_tensor(ns: Any) -> Any:
        x, where = cube(ns), INDICES[index](ns)
        value = ns.tensor([5.0], requires_grad=True)
        y = x * 1
        y[where] = value
        y.sum().backward()
        return y.detach(), value.grad

    for program in (read, read_gradient, write, write_tensor):
        same(program, torch, with_warnings=False)


# -- modules --------------------------------------------------------------------------------------


def _net(ns: Any) -> Any:
    ns.manual_seed(0)
    return ns.nn.Sequential(ns.nn.Linear(2, 3), ns.nn.BatchNorm1d(3), ns.nn.Linear(3, 1))


def missing_keys(ns: Any) -> Any:
    state = _net(ns).state_dict()
    del state["0.weight"]
    state["other"] = ns.ones(1)
    found = _net(ns).load_state_dict(state, strict=False)
    return found.missing_keys, found.unexpected_keys


def missing_keys_strict(ns: Any) -> Any:
    state = _net(ns).state_dict()
    del state["0.weight"]
    _net(ns).load_state_dict(state)


def wrong_shape(ns: Any) -> Any:
    state = _net(ns).state_dict()
    state["0.weight"] = ns.ones(1)
    _net(ns).load_state_dict(state, strict=False)


def order_of_state(ns: Any) -> Any:
    state = _net(ns).state_dict(prefix="a.")
    return list(state), state._metadata


def names_of_modules(ns: Any) -> Any:
    net = _net(ns)
    net.add_module("again", net[0])
    return (
        [n for n, _ in net.named_modules()], [n for n, _ in net.named_parameters()],
        [n for n, _ in net.named_parameters(remove_duplicate=False)],
        [n for n, _ in net.named_buffers()], [n for n, _ in net.named_children()],
    )  # fmt: skip


def attribute_before_init(ns: Any) -> Any:
    class Wrong(ns.nn.Module):
        def __init__(self) -> None:
            self.weight = ns.nn.Parameter(ns.ones(1))

    Wrong()


def module_before_init(ns: Any) -> Any:
    class Wrong(ns.nn.Module):
        def __init__(self) -> None:
            self.layer = ns.nn.Linear(1, 1)

    Wrong()


def tensor_for_a_parameter(ns: Any) -> Any:
    net = ns.nn.Linear(1, 1)
    net.weight = ns.ones(1, 1)


def none_for_a_parameter(ns: Any) -> Any:
    net = ns.nn.Linear(1, 1)
    net.bias = None
    return [n for n, _ in net.named_parameters()], net.bias, list(net.state_dict())


def missing_attribute(ns: Any) -> Any:
    return ns.nn.Linear(1, 1).nothing


def registered_twice(ns: Any) -> Any:
    net = ns.nn.Linear(1, 1)
    net.register_buffer("weight", ns.ones(1))


def name_with_a_dot(ns: Any) -> Any:
    ns.nn.Module().register_parameter("a.b", None)


def non_leaf_parameter(ns: Any) -> Any:
    net = ns.nn.Module()
    net.register_parameter("w", ns.ones(1, requires_grad=True) * 2)


def buffers_not_kept(ns: Any) -> Any:
    net = ns.nn.Module()
    net.register_buffer("a", ns.ones(1), persistent=False)
    net.register_buffer("b", None)
    return list(net.state_dict()), [n for n, _ in net.named_buffers()]


def get_submodules(ns: Any) -> Any:
    net = ns.nn.Sequential(_net(ns))
    return net.get_submodule("0.1").num_features, net.get_parameter("0.0.bias").shape


def no_submodule(ns: Any) -> Any:
    return _net(ns).get_submodule("9")


def no_parameter(ns: Any) -> Any:
    return _net(ns).get_parameter("0.nothing")


def no_forward(ns: Any) -> Any:
    ns.nn.Module()(1)


def converts(ns: Any) -> Any:
    net = _net(ns).double().half()
    return [str(t.dtype).partition(".")[2] for t in net.state_dict().values()]


def converts_to_integers(ns: Any) -> Any:
    _net(ns).to(ns.int64)


def order_of_module_hooks(ns: Any) -> Any:
    seen: list[str] = []
    net = ns.nn.Linear(2, 2)
    net.register_forward_hook(lambda *a: seen.append("forward"))
    net.register_forward_hook(lambda *a: seen.append("first"), prepend=True)
    net.register_forward_pre_hook(lambda *a: seen.append("before"))
    net.register_full_backward_pre_hook(lambda *a: seen.append("before backward"))
    net.register_full_backward_hook(lambda *a: seen.append("backward"))
    net.register_forward_hook(lambda *a: seen.append("always"), always_call=True)
    net(ns.ones(1, 2, requires_grad=True)).sum().backward()
    return seen


def hooks_with_keywords(ns: Any) -> Any:
    class Scaled(ns.nn.Module):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return x * scale

    net = Scaled()
    net.register_forward_pre_hook(lambda m, a, k: (a, {"scale": 3.0}), with_kwargs=True)
    net.register_forward_hook(lambda m, a, k, out: out + k["scale"], with_kwargs=True)
    return net(ns.ones(2), scale=2.0)


def hooks_of_state(ns: Any) -> Any:
    net, seen = ns.nn.Linear(1, 1), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append("before"))
    net._register_state_dict_hook(lambda m, state, prefix, meta: seen.append(sorted(state)))
    net.register_load_state_dict_post_hook(lambda m, keys: seen.append("loaded"))
    net.load_state_dict(net.state_dict())
    return seen


def zero_gradients(ns: Any) -> Any:
    net = ns.nn.Linear(1, 1)
    net(ns.ones(1, 1)).sum().backward()
    net.zero_grad(set_to_none=False)
    zero = net.weight.grad.clone()
    net.zero_grad()
    return zero, net.weight.grad


def text_of_modules(ns: Any) -> Any:
    return repr(ns.nn.Sequential(_net(ns), ns.nn.Conv2d(1, 2, 3, padding=1, bias=False)))


def copies(ns: Any) -> Any:
    net = _net(ns)
    other = copy.deepcopy(net)
    other[0].weight.data.zero_()
    again = pickle.loads(pickle.dumps(net))
    return net[0].weight.detach().sum() != 0, ns.equal(again[0].weight, net[0].weight)


def lists_of_modules(ns: Any) -> Any:
    items = ns.nn.ModuleList([ns.nn.ReLU()])
    items.append(ns.nn.Tanh())
    items.insert(1, ns.nn.Sigmoid())
    items.extend([ns.nn.GELU()])
    removed = items.pop(0)
    return [type(m).__name__ for m in items], type(removed).__name__, len(items[1:])


def not_a_module(ns: Any) -> Any:
    ns.nn.ModuleList([1])


# -- optimizers -----------------------------------------------------------------------------------


def _two(ns: Any) -> Any:
    return [ns.nn.Parameter(ns.ones(2)), ns.nn.Parameter(ns.ones(3))]


def no_parameters(ns: Any) -> Any:
    ns.optim.SGD([], lr=0.1)


def not_a_leaf(ns: Any) -> Any:
    ns.optim.SGD([ns.ones(1, requires_grad=True) * 2], lr=0.1)


def not_an_iterable(ns: Any) -> Any:
    ns.optim.SGD(ns.ones(1), lr=0.1)


def the_same_twice(ns: Any) -> Any:
    p = ns.nn.Parameter(ns.ones(1))
    ns.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)


def negative_rate(ns: Any) -> Any:
    ns.optim.Adam(_two(ns), lr=-1.0)


def other_groups(ns: Any) -> Any:
    state = ns.optim.SGD([{"params": [p]} for p in _two(ns)], lr=0.1).state_dict()
    ns.optim.SGD(_two(ns), lr=0.1).load_state_dict(state)


def other_sizes(ns: Any) -> Any:
    state = ns.optim.SGD(_two(ns), lr=0.1).state_dict()
    ns.optim.SGD(_two(ns)[:1], lr=0.1).load_state_dict(state)


def state_of_adam(ns: Any) -> Any:
    parameters = _two(ns)
    optimizer = ns.optim.Adam(parameters, lr=0.1, amsgrad=True)
    parameters[1].sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    groups = {k: v for k, v in state["param_groups"][0].items() if k != "params"}
    return state["state"], groups, state["param_groups"][0]["params"]


def state_is_copied(ns: Any) -> Any:
    parameters = _two(ns)
    optimizer = ns.optim.SGD(parameters, lr=0.1, momentum=0.9)
    parameters[0].sum().backward()
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    other = ns.optim.SGD(_two(ns), lr=0.5, momentum=0.1)
    other.load_state_dict(state)
    return other.param_groups[0]["lr"], other.state_dict()["state"][0]


def groups_with_options(ns: Any) -> Any:
    first, second = _two(ns)
    optimizer = ns.optim.SGD([{"params": first, "lr": 1.0}], lr=0.1)
    optimizer.add_param_group({"params": [second]})
    return [group["lr"] for group in optimizer.param_groups], len(optimizer.param_groups)


def hooks_of_steps(ns: Any) -> Any:
    parameters, seen = _two(ns), []
    optimizer = ns.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_pre_hook(lambda o, a, k: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, a, k: seen.append("after"))
    parameters[0].sum().backward()
    optimizer.step()
    return seen, parameters[0].detach()


def schedules_in_turn(ns: Any) -> Any:
    optimizer = ns.optim.SGD(_two(ns), lr=1.0)
    schedules = ns.optim.lr_scheduler
    warm = schedules.LinearLR(optimizer, 0.1, total_iters=3)
    then = schedules.CosineAnnealingLR(optimizer, 5)
    whole = schedules.SequentialLR(optimizer, [warm, then], [3])
    found = []
    for _ in range(7):
        optimizer.step()
        whole.step()
        found.append(whole.get_last_lr()[0])
    return found, whole.state_dict()["last_epoch"]


def schedule_before_step(ns: Any) -> Any:
    optimizer = ns.optim.SGD(_two(ns), lr=1.0)
    schedule = ns.optim.lr_scheduler.StepLR(optimizer, 1)
    schedule.step()
    return schedule.get_last_lr()


# -- files ----------------------------------------------------------------------------------------


def shared_memory_in_files(ns: Any) -> Any:
    x = ns.arange(6.0)
    file = io.BytesIO()
    ns.save({"x": x, "part": x[2:4]}, file)
    file.seek(0)
    found = ns.load(file)
    found["x"][2] = 9
    return found["part"]


def strides_in_files(ns: Any) -> Any:
    file = io.BytesIO()
    ns.save([ns.arange(6.0).reshape(2, 3).t(), ns.ones(2, requires_grad=True), 3, "a"], file)
    file.seek(0)
    return ns.load(file)


def code_in_files(ns: Any) -> Any:
    file = io.BytesIO()
    ns.save({"f": io.StringIO}, file)
    file.seek(0)
    ns.load(file)


def empty_file(ns: Any) -> Any:
    ns.load(io.BytesIO())


def pickled_tensors(ns: Any) -> Any:
    x = ns.ones(2, requires_grad=True)
    return pickle.loads(
        pickle.dumps([x, x.detach(), ns.nn.Parameter(ns.ones(1)), ns.float32, x.shape])
    )


def deepcopy_shares(ns: Any) -> Any:
    x = ns.ones(3)
    a, b = copy.deepcopy([x, x[:2]])
    a[0] = 5
    return b


def deepcopy_of_a_result(ns: Any) -> Any:
    copy.deepcopy(ns.ones(1, requires_grad=True) * 2)


# -- loaders --------------------------------------------------------------------------------------


def uneven_batches(ns: Any) -> Any:
    data = ns.utils.data
    ns.manual_seed(0)
    loader = data.DataLoader(data.TensorDataset(ns.arange(5)), batch_size=2, shuffle=True)
    kept = data.DataLoader(data.TensorDataset(ns.arange(5)), batch_size=2, drop_last=True)
    return [b[0] for b in loader], len(loader), len(kept)


def shapes_that_differ(ns: Any) -> Any:
    list(ns.utils.data.DataLoader([ns.ones(1), ns.ones(2)], batch_size=2))


def collated(ns: Any) -> Any:
    rows = [{"a": 1, "b": (2.0, "x"), "c": np.ones(2)}, {"a": 2, "b": (3.0, "y"), "c": np.zeros(2)}]
    return ns.utils.data.default_collate(rows)


def nothing_to_collate(ns: Any) -> Any:
    ns.utils.data.default_collate([None, None])


def shuffle_and_sampler(ns: Any) -> Any:
    data = ns.utils.data
    data.DataLoader([1], shuffle=True, sampler=data.SequentialSampler([1]))


def random_parts(ns: Any) -> Any:
    generator = ns.Generator().manual_seed(1)
    parts = ns.utils.data.random_split(range(10), [0.5, 0.3, 0.2], generator=generator)
    return [list(part) for part in parts]


def too_few_parts(ns: Any) -> Any:
    ns.utils.data.random_split(range(10), [3, 3])


PROGRAMS = [value for name, value in list(globals().items()) if callable(value)
            and getattr(value, "__module__", "") == __name__
            and not name.startswith(("_", "test"))]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_programs(program: Program, torch: ModuleType) -> None:
    same(program, torch)
