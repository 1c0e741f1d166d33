"""Small things that programs of the PyTorch world rely on, the same under both libraries."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from oracle import assert_same

# -- graphs ---------------------------------------------------------------------------------------


def _edges(ns: Any) -> Any:
    x = ns.ones(3, requires_grad=True)
    middle = x * 2
    end = (middle * middle).sum()
    edge, root = map(ns.autograd.graph.get_gradient_edge, (middle, end))
    found = ns.autograd.grad(end, [edge], retain_graph=True)
    found += ns.autograd.grad(root, [x], retain_graph=True)
    found += ns.autograd.grad(root, [edge], ns.tensor(3.0), retain_graph=True)
    found += ns.autograd.grad(end, [ns.autograd.graph.GradientEdge(middle.grad_fn, 0)])
    return found


def _backward_from_an_edge(ns: Any) -> Any:
    x = ns.ones(3, requires_grad=True)
    ns.autograd.backward(ns.autograd.graph.get_gradient_edge((x * 3).sum()))
    return x.grad


def _materialized_edges(ns: Any) -> Any:
    x = ns.ones(3, requires_grad=True)
    y = x * 2
    edge = ns.autograd.graph.get_gradient_edge(y)
    return ns.autograd.grad((x * 3).sum(), [edge], materialize_grads=True)


def _scalar_cotangent_of_a_vector(ns: Any) -> Any:
    edge = ns.autograd.graph.get_gradient_edge(ns.ones(3, requires_grad=True) * 2)
    return ns.autograd.backward(edge)


def _notes(ns: Any) -> Any:
    node = (ns.ones(1, requires_grad=True) * 2).grad_fn
    node.metadata["seen"] = 3
    return [node.metadata["seen"], len(node.metadata)]


@pytest.mark.parametrize(
    "program",
    [
        _edges,
        _backward_from_an_edge,
        _materialized_edges,
        _scalar_cotangent_of_a_vector,
        _notes,
    ],
)
def test_edges_and_nodes(program: Any, torch: ModuleType) -> None:
    assert_same(torch, program)


def test_a_node_stands_for_its_first_result() -> None:
    x = evergrad.ones(2, requires_grad=True)
    y = x * 2
    assert y.grad_fn is not None
    assert evergrad.autograd.grad((y * y).sum(), y.grad_fn)[0].tolist() == [4, 4]


def test_gradcheck_changes_the_input_in_place(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        x = ns.tensor([0.3, 0.7], dtype=ns.float64, requires_grad=True)
        before = x.tolist()
        return [ns.autograd.gradcheck(lambda _: (x * x).sum(), (x,)), x.tolist() == before]

    assert_same(torch, program)


def _early_stop(ns: Any) -> Any:
    seen: list[str] = []

    def part(v: Any) -> Any:
        y = (v * v).sum()
        seen.append("end")
        return y

    for enabled in (True, False):
        with ns.utils.checkpoint.set_checkpoint_early_stop(enabled):
            x = ns.ones(2, requires_grad=True)
            ns.utils.checkpoint.checkpoint(part, x, use_reentrant=False).backward()
        seen.append(str(x.grad.tolist()))
    return seen


def _selective(ns: Any) -> Any:
    module = ns.utils.checkpoint
    contexts = partial(
        module.create_selective_checkpoint_contexts,
        lambda ctx, op, *args, **kwargs: module.CheckpointPolicy.PREFER_RECOMPUTE,
    )
    x = ns.full((2, 2), 0.5, requires_grad=True)
    y = module.checkpoint(
        lambda v: (v @ v).sin().sum(), x, use_reentrant=False, context_fn=contexts
    )
    y.backward()
    return [y.detach(), x.grad]


@pytest.mark.parametrize("program", [_early_stop, _selective])
def test_checkpoints(program: Any, torch: ModuleType) -> None:
    assert_same(torch, program, 1e-6)


# -- tensors --------------------------------------------------------------------------------------


def _parts(ns: Any) -> Any:
    x = ns.zeros(2, dtype=ns.complex64)
    x.real = ns.ones(2)
    x.imag = 3 * ns.ones(2)
    y = ns.ones(2)
    y.real = ns.zeros(2)
    return [ns.view_as_real(x), y]


def _pickled(ns: Any) -> Any:
    functions = (ns.exp, ns.add, ns.relu, ns.nn.functional.gelu, ns.linalg.norm, ns.fft.fft,
                 ns.cat, ns.special.erf, ns.hsplit, ns.squeeze)  # fmt: skip
    return [pickle.loads(pickle.dumps(function)) is function for function in functions]


def _kernels_of_gradients(ns: Any) -> Any:
    import_grad = ns.nn.grad
    x, w = ns.arange(48.0).reshape(1, 3, 4, 4), ns.ones(2, 3, 3, 3)
    g = ns.ones(1, 2, 2, 2)
    return [
        import_grad.conv2d_input(x.shape, w, g),
        import_grad.conv2d_weight(x, w.shape, g),
        import_grad.conv1d_input((1, 2, 5), ns.ones(1, 2, 3), ns.ones(1, 1, 2), stride=2),
        import_grad.conv3d_weight(ns.ones(1, 1, 3, 3, 3), (1, 1, 2, 2, 2), ns.ones(1, 1, 2, 2, 2)),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [_parts, _pickled, _kernels_of_gradients])
def test_tensors_and_functions(program: Any, torch: ModuleType) -> None:
    assert_same(torch, program)


# -- storages -------------------------------------------------------------------------------------


def _typed(ns: Any) -> Any:
    x = ns.arange(4.0)
    storage = x.storage()
    storage[0] = 9
    found = [len(storage), storage.tolist(), storage.element_size(), x.clone()]
    storage.fill_(3)
    own = ns.FloatStorage([1.0, 2.0])
    own.copy_(ns.FloatStorage([5.0, 6.0]))
    found += [x, own.tolist(), ns.tensor(own), ns.is_storage(own), ns.is_storage(x)]
    found += [own.double().tolist(), own.long().tolist(), str(own.double().dtype)[-7:]]
    found += [ns.FloatStorage(3).size(), ns.LongStorage([1, 2]).tolist()]
    copy = own.clone()
    copy[0] = 0
    own.resize_(3)
    return [*found, own.tolist()[:2], own.size()]


def _untyped(ns: Any) -> Any:
    storage = ns.UntypedStorage(4)
    storage.fill_(1)
    grown = storage.clone()
    grown.resize_(6)
    on_it = ns.tensor([], dtype=ns.uint8).set_(storage)
    storage.copy_(ns.UntypedStorage([2, 3, 4, 5]))
    return [storage.nbytes(), grown.nbytes(), ns.UntypedStorage([1, 2]).tolist(), on_it]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("program", [_typed, _untyped])
def test_storages(program: Any, torch: ModuleType) -> None:
    assert_same(torch, program)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_files_as_memory(tmp_path: Path, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        path = str(tmp_path / f"{ns.__name__}.bin")
        shared = ns.from_file(path, shared=True, size=4, dtype=ns.float32)
        shared.fill_(2)
        private = ns.from_file(path, shared=False, size=2)
        private[0] = 7
        again = ns.FloatStorage.from_file(path, False, 4)
        return [private, again.tolist(), Path(path).stat().st_size]

    assert_same(torch, program)
    assert np.fromfile(tmp_path / "evergrad.bin", np.float32).tolist() == [2, 2, 2, 2]


def test_a_storage_that_tensors_look_at_keeps_its_size() -> None:
    x = evergrad.ones(3)
    with pytest.raises(RuntimeError, match="resize_"):
        x.untyped_storage().resize_(0)


# -- containers -----------------------------------------------------------------------------------


def _trees(ns: Any) -> Any:
    from importlib import import_module

    trees = import_module(f"{ns.__name__}.utils._pytree")
    tree = {"a": [1, (2, 3)], "b": None}
    leaves, spec = trees.tree_flatten(tree)
    pairs, _ = trees.tree_flatten_with_path(tree)
    return [
        leaves, trees.tree_unflatten(leaves, spec) == tree, trees.tree_is_leaf(3),
        [trees.keystr(path) for path, _ in pairs],
        [trees.key_get(tree, path) for path, _ in pairs],
        str(trees.tree_map_with_path(lambda path, leaf: (trees.keystr(path), leaf), tree)),
        trees.tree_map_only(lambda leaf: leaf == 2, lambda leaf: 20, [1, 2]),
        trees.tree_all_only(int, lambda leaf: leaf > 0, ["a", 1]),
        list(trees.tree_iter([[1], 2], is_leaf=lambda node: node == [1])),
    ]  # fmt: skip


def test_trees(torch: ModuleType) -> None:
    assert_same(torch, _trees)
