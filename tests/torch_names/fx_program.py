"""Uses of ``torch.fx``, printed: the text is the same with PyTorch and with evergrad.as_torch."""

import copy
import math
import operator
import pickle
from typing import NamedTuple

import torch
from torch import fx, nn
from torch.fx import Graph, GraphModule, Interpreter, Tracer, Transformer, symbolic_trace
from torch.fx.experimental.optimization import fuse
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.passes.split_module import split_module

CASES = []
fx.wrap("len")


def case(function):
    CASES.append(function)
    return function


@fx.wrap
def scaled(x, k=2):
    return x * k if x.sum() > 0 else x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("places", torch.arange(4.0))
        self.last = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.LayerNorm(3))

    def forward(self, x, flag: bool = True, *, factor=1.5):
        y = self.first(x) + self.scale * self.places
        y = scaled(y, 3)
        z = torch.cat([y, y.relu()], dim=-1)
        a, b = z.chunk(2, -1)
        return {"o": self.last(a + b) * factor, "t": (y[:, 1:3], y.shape[0], y.size(1))}


class Block(nn.Module):
    def __init__(self, d=8, h=2):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.gain = nn.Parameter(torch.ones(d) * 0.5)
        self.layers = nn.ModuleList([nn.Linear(d, d) for _ in range(2)])

    def forward(self, x, mask=None):
        b, t, d = x.shape
        qkv = self.qkv(self.norm(x)).view(b, t, 3, self.h, d // self.h)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = (q @ k.transpose(-2, -1)) / math.sqrt(d // self.h)
        y = (a.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)
        x = x + self.gain * self.out(y)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x, x.max(dim=1)[0], x.new_zeros(3), len(x)


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def total(value):
    return round(value.double().sum().item(), 4)


@case
def source():
    return symbolic_trace(Net()).code, symbolic_trace(Block()).code


@case
def text():
    return str(symbolic_trace(Net()).graph), str(symbolic_trace(nn.Sequential(nn.ReLU())))


@case
def results():
    net, block = Net(), Block()
    x = torch.randn(2, 4)
    traced, other = symbolic_trace(net), symbolic_trace(block)
    y = torch.randn(2, 3, 8)
    same = torch.equal(traced(x)["o"], net(x)["o"]), torch.equal(other(y)[0], block(y)[0])
    return same, traced(x, factor=2.0)["t"][1:], other(y)[3]


@case
def training():
    block = Block()
    traced = symbolic_trace(block)
    traced(torch.ones(1, 3, 8))[0].pow(2).mean().backward()
    return sorted(n for n, p in block.named_parameters() if p.grad is not None)


@case
def interpreter():
    class Doubled(Interpreter):
        count = 0

        def call_function(self, target, args, kwargs):
            factor = 2 if target is torch.cat else 1
            result = super().call_function(target, args, kwargs)
            return result * 2 if factor == 2 else result

        def run_node(self, n):
            self.count += 1
            return super().run_node(n)

    doubled = Doubled(symbolic_trace(Net()))
    return doubled.run(torch.ones(2, 4))["o"].shape, doubled.count


@case
def edits():
    traced = symbolic_trace(Net())
    for node in traced.graph.nodes:
        if node.target == "relu":
            with traced.graph.inserting_after(node):
                made = traced.graph.call_function(torch.sigmoid, node.args)
            node.replace_all_uses_with(made)
            traced.graph.erase_node(node)
        elif node.op == "call_module":
            with traced.graph.inserting_after(node):
                made = traced.graph.call_function(torch.tanh, args=(node,))
            node.replace_all_uses_with(made)
            made.args = (node,)
    traced.graph.lint()
    traced.recompile()
    return traced.code, traced(torch.ones(2, 4))["o"].shape, len(traced.graph.nodes)


@case
def refused_edits():
    traced = symbolic_trace(Net())
    found = []
    for action in (
        lambda: traced.graph.erase_node(next(iter(traced.graph.nodes))),
        lambda: symbolic_trace(lambda x: x if x.sum() > 0 else -x),
        lambda: symbolic_trace(lambda x: sum(x)),
        lambda: symbolic_trace(lambda x: range(x)),
        lambda: Interpreter(traced).run(),
        lambda: GraphModule({}, traced.graph),
    ):
        try:
            action()
        except Exception as error:
            found.append(type(error).__name__)
    return found


@case
def patterns():
    traced = symbolic_trace(lambda x: torch.relu(x) + torch.relu(x * 2))
    matches = fx.replace_pattern(traced, lambda x: torch.relu(x), lambda x: torch.tanh(x))
    other = symbolic_trace(lambda x, w: torch.add(torch.matmul(x, w), 1).relu())
    found = fx.replace_pattern(
        other, lambda a, b: torch.add(torch.matmul(a, b), 1), lambda a, b: torch.mm(a, b)
    )
    x = torch.arange(4.0).view(2, 2)
    return len(matches), total(traced(x)), found[0].nodes_map, other.code, total(other(x, x))


@case
def concrete_arguments():
    def choose(x, flag=True, mode=None):
        return x.sin() if flag else x

    traced = symbolic_trace(choose, concrete_args={"flag": False, "mode": None})
    try:
        traced(torch.ones(1), True)
    except AssertionError as error:
        return traced.code.replace("torch.fx._symbolic_trace.", "torch."), str(error)


@case
def built_by_hand():
    graph = Graph()
    x = graph.placeholder("x")
    y = graph.call_function(operator.add, (x, 1))
    z = graph.call_method("sum", (y,))
    w = graph.call_module("inner.lin", (y,))
    p = graph.get_attr("par")
    end = graph.output((z, w, p))
    parts = {"inner.lin": nn.Linear(3, 2), "par": nn.Parameter(torch.ones(2))}
    module = GraphModule(parts, graph)
    shapes = [tuple(v.shape) for v in module(torch.ones(3))]
    links = y.next.name, y.prev.name, x.prev.op, end.next.op
    return module.code, shapes, list(y.users), w.all_input_nodes, end.args, links


@case
def proxies():
    graph = Graph()
    x = fx.Proxy(graph.placeholder("x"))
    y = (torch.relu(x) + 1)[0].sum(dim=0).to(torch.float64)
    graph.output(y.node)
    return str(graph), GraphModule(nn.Module(), graph)(torch.ones(2, 2))


@case
def copies():
    traced = symbolic_trace(Net())
    copied, loaded = copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))
    x = torch.ones(1, 4)
    same = torch.equal(copied(x)["o"], traced(x)["o"]), torch.equal(loaded(x)["o"], traced(x)["o"])
    fresh, mapping = Graph(), {}
    fresh.output(fresh.graph_copy(traced.graph, mapping))
    return same, type(traced).__name__, len(fresh.nodes), copied.code == traced.code


@case
def tracers():
    class Custom(Tracer):
        def is_leaf_module(self, m, qualified):
            return isinstance(m, nn.Sequential) or super().is_leaf_module(m, qualified)

    class Renamed(Transformer):
        def call_function(self, target, args, kwargs):
            if target is torch.cat:
                return super().call_function(torch.hstack, args, {})
            return super().call_function(target, args, kwargs)

    graph = Custom().trace(Net())
    renamed = Renamed(symbolic_trace(Net())).transform()
    return [n.target for n in graph.nodes if n.op == "call_module"], renamed.code.count("hstack")


@case
def shapes():
    traced = symbolic_trace(Net())
    ShapeProp(traced).propagate(torch.ones(2, 4))
    return [
        (n.name, tuple(n.meta["tensor_meta"].shape), n.meta["tensor_meta"].dtype)
        for n in traced.graph.nodes
        if hasattr(n.meta.get("tensor_meta"), "shape")
    ]


@case
def optimized():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).eval()
    x = torch.randn(1, 1, 5, 5)
    fused = fuse(model)
    return torch.allclose(fused(x), model(x), atol=1e-5), [n for n, _ in fused.named_modules()]


@case
def splits():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    traced = symbolic_trace(model)
    parts = split_module(traced, model, lambda n: 0 if n.name in ("_0", "_1") else 1)
    x = torch.ones(1, 2)
    return torch.equal(parts(x), model(x)), [n for n, _ in parts.named_children()], parts.code


@case
def dead_code():
    traced = symbolic_trace(lambda x: (x.sin(), x.cos(), torch.add(x, 1))[1])
    before = len(traced.graph.nodes)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return before, traced.code, traced.graph.find_nodes(op="call_method", target="cos")


@case
def variadic():
    def function(a, b=3, *args, **kw):
        return a * b + args[0]

    traced = symbolic_trace(function)
    return traced.code, traced(torch.ones(1), 2, torch.ones(1))


@case
def submodules():
    traced = symbolic_trace(Net())
    traced.add_submodule("extra.x", nn.ReLU())
    traced.delete_all_unused_submodules()
    return [n for n, _ in traced.named_modules()], traced.delete_submodule("none.such")


@case
def operators():
    def function(x, y):
        z = torch.where(x > 0, x, y).clamp(min=0.0)[..., None].expand(-1, -1, 2).contiguous()
        z = z.masked_fill(x[..., None] < 0, float("inf"))
        z = -(z**2) % 3 // 1 - 2 / z
        return z, ~(x > 0) & (y != 0), torch.stack([x, y]).mean((0, 1)), x.T, abs(x), 2 @ x

    return symbolic_trace(function).code


@case
def containers():
    def function(x, d, n):
        return d["a"] + x * n[0], {"k": x, "l": [x, (x,)]}, slice(x, 1)

    traced = symbolic_trace(function)
    return traced.code, traced(torch.ones(1), {"a": torch.ones(1)}, [3])[:2]


torch.manual_seed(0)
for function in CASES:
    print(function.__name__, function())
