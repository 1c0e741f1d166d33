"""Every layer against PyTorch's: starting values, results, gradients, buffers, text, copies."""

from __future__ import annotations

import copy
import pickle
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad

from .layer_cases import CASES, Array, Case, Fixed

SEED = 7
every_case = pytest.mark.parametrize("case", CASES, ids=str)


# -- running a case -----------------------------------------------------------------------------


def built(ns: Any, case: Case) -> Any:
    ns.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's transformer tells why it is not faster
        return case.build(ns)


def as_argument(ns: Any, value: Any, kind: str, leaves: list[Any]) -> Any:
    """An array as a tensor of the element type; those with a gradient are noted in ``leaves``."""
    if isinstance(value, tuple):
        return tuple(as_argument(ns, v, kind, leaves) for v in value)
    if isinstance(value, Fixed):
        return ns.tensor(value.array).to(getattr(ns, kind))
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    made = ns.tensor(value)
    if value.dtype.kind == "f":
        made = made.to(getattr(ns, kind)).requires_grad_()
        leaves.append(made)
    return made


def tensors_of(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in tensors_of(part)]
    return [result] if hasattr(result, "detach") else []


def call(ns: Any, layer: Any, case: Case, kind: str) -> tuple[list[Any], list[Any]]:
    """The results of calling a layer, and the arguments whose gradient is asked for."""
    leaves: list[Any] = []
    args = [as_argument(ns, a, kind, leaves) for a in case.args]
    kwargs = {name: as_argument(ns, a, kind, leaves) for name, a in case.kwargs.items()}
    ns.manual_seed(SEED + 1)
    result = layer(*args, **kwargs) if case.call is None else case.call(ns, layer, *args, **kwargs)
    return tensors_of(result), leaves


def called_quietly(layer: Any, case: Case) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(evergrad, layer, case, "float32")[0]


def step(ns: Any, case: Case, kind: str, training: bool) -> dict[str, Array]:
    """Everything a forward and backward pass leaves behind, by name."""
    layer = built(ns, case).to(getattr(ns, kind)).train(training)
    results, leaves = call(ns, layer, case, kind)
    directions = np.random.default_rng(3)
    live = [r for r in results if r.requires_grad]
    weighed = [(r * ns.tensor(directions.standard_normal(tuple(r.shape)))).sum() for r in live]
    if weighed:
        sum(weighed).backward()
    found = {f"result {i}": r for i, r in enumerate(results)}
    found |= {f"grad of argument {i}": leaf.grad for i, leaf in enumerate(leaves)}
    found |= {f"grad of {name}": p.grad for name, p in layer.named_parameters()}
    found |= {f"buffer {name}": b for name, b in layer.named_buffers()}
    return {name: t if t is None else t.detach().numpy() for name, t in found.items()}


def assert_all_close(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
            continue
        assert found[name].dtype == value.dtype, name
        scale = max(1.0, float(np.abs(value[np.isfinite(value)]).max(initial=0.0)))
        np.testing.assert_allclose(
            found[name], value, rtol=tolerance, atol=tolerance * scale, err_msg=name
        )


# -- what must hold -----------------------------------------------------------------------------


@every_case
def test_starts_like_pytorch(case: Case, torch: ModuleType) -> None:
    """The same seed gives the same numbers under the same names, and the same text."""
    ours, theirs = built(evergrad, case), built(torch, case)
    assert repr(ours) == repr(theirs).replace("torch.", "evergrad.")
    mine, reference = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(reference)
    for name, value in reference.items():
        assert tuple(mine[name].shape) == tuple(value.shape)
        np.testing.assert_array_equal(mine[name].numpy(), value.numpy(), err_msg=name)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]


@every_case
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("kind", "tolerance"), [("float64", 1e-9), ("float32", 1e-5)])
def test_computes_like_pytorch(
    case: Case, kind: str, tolerance: float, training: bool, torch: ModuleType
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = step(torch, case, kind, training)
        found = step(evergrad, case, kind, training)
    assert_all_close(found, expected, max(tolerance, case.error))


@every_case
def test_copies_compute_the_same(case: Case) -> None:
    layer = built(evergrad, case).eval()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    expected = called_quietly(layer, case)
    layer.load_state_dict(before)
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(copied) == repr(layer)
        assert list(copied.state_dict()) == list(layer.state_dict())
        found = called_quietly(copied, case)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
        for mine, theirs in zip(copied.parameters(), layer.parameters(), strict=True):
            assert isinstance(mine, evergrad.nn.Parameter)
            assert mine.requires_grad == theirs.requires_grad
            assert mine.data_ptr() != theirs.data_ptr()


@every_case
def test_state_passes_to_pytorch_and_back(case: Case, torch: ModuleType) -> None:
    ours, theirs = built(evergrad, case), built(torch, case)
    given = {name: torch.tensor(value.numpy()) for name, value in ours.state_dict().items()}
    assert str(theirs.load_state_dict(given)) == "<All keys matched successfully>"
    returned = {n: evergrad.tensor(v.numpy()) for n, v in theirs.state_dict().items()}
    assert str(ours.load_state_dict(returned)) == "<All keys matched successfully>"
