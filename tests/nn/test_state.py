"""Saving and loading: names, strictness, sharing, and that a failed load changes nothing."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evergrad
from evergrad import nn
from twins import agree, refuse


def model(ns: Any) -> Any:
    ns.manual_seed(0)
    return ns.nn.Sequential(ns.nn.Linear(2, 3), ns.nn.BatchNorm1d(3), ns.nn.Linear(3, 1))


def test_state_shares_memory_and_has_no_history(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = model(ns)
        state = m.state_dict()
        with ns.no_grad():
            m[0].weight.fill_(7)
        flags = [v.requires_grad for v in state.values()]
        kept = [v.requires_grad for v in m.state_dict(keep_vars=True).values()]
        return state["0.weight"], flags, kept

    agree(program, torch)


def test_prefix_destination_and_metadata(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, destination = model(ns), {"before": 1}
        found = m.state_dict(destination=destination, prefix="net.")
        assert found is destination
        return list(found), dict(m.state_dict()._metadata)

    agree(program, torch)


def test_load_round_trip(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m, other = model(ns), model(ns)
        with ns.no_grad():
            for p in m.parameters():
                p.add_(1)
        weight = other[0].weight
        result = other.load_state_dict(m.state_dict())
        assert other[0].weight is weight
        return dict(other.state_dict()), str(result)

    agree(program, torch)


@pytest.mark.parametrize(
    "change",
    [
        lambda ns, s: s.pop("0.weight"),
        lambda ns, s: s.update({"extra": ns.ones(1)}),
        lambda ns, s: s.update({"0.extra": ns.ones(1)}),
        lambda ns, s: s.update({"9.weight": ns.ones(1)}),
        lambda ns, s: s.update({"2.weight": ns.ones(5)}),
        lambda ns, s: s.update({"2.weight": [1.0, 2.0]}),
        lambda ns, s: (s.pop("2.bias"), s.update({"x.y": ns.ones(1), "0.weight": ns.ones(9, 9)})),
    ],
)
def test_a_failed_load_changes_nothing(change: Any, torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = model(ns)
        state = {name: value * 0 + 5 for name, value in m.state_dict().items()}
        change(ns, state)
        m.load_state_dict(state)

    ours = refuse(program, torch, "Error")
    with pytest.raises(RuntimeError) as theirs:
        program(torch)
    assert str(ours).replace("evergrad", "torch").split("\n")[0] == str(theirs.value).split("\n")[0]
    m = model(evergrad)
    before = {name: value.clone() for name, value in m.state_dict().items()}
    state = {name: value * 0 + 5 for name, value in before.items()}
    change(evergrad, state)
    with pytest.raises(RuntimeError):
        m.load_state_dict(state)
    for name, value in m.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name].numpy())


def test_messages_name_every_problem(torch: ModuleType) -> None:
    def message(ns: Any) -> str:
        m = model(ns)
        state = dict(m.state_dict())
        del state["0.bias"]
        state["a"] = ns.ones(1)
        state["2.weight"] = ns.ones(2, 2)
        with pytest.raises(RuntimeError) as caught:
            m.load_state_dict(state)
        return str(caught.value).replace("torch", "evergrad")

    assert message(evergrad) == message(torch)


def test_not_strict(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = model(ns)
        result = m.load_state_dict({"0.weight": ns.ones(3, 2), "other": ns.ones(1)}, strict=False)
        return result.missing_keys, result.unexpected_keys, m[0].weight, repr(result)

    agree(program, torch)
    refuse(lambda ns: model(ns).load_state_dict({"0.weight": ns.ones(9)}, strict=False), torch)
    refuse(lambda ns: model(ns).load_state_dict(3), torch)


def test_assign(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Linear(2, 1)
        m.bias.requires_grad_(False)
        given = {"weight": ns.ones(1, 2, dtype=ns.float64), "bias": ns.nn.Parameter(ns.ones(1))}
        m.load_state_dict(given, assign=True)
        return (
            m.weight, str(m.weight.dtype).partition(".")[2], m.weight.requires_grad,
            m.bias is given["bias"], m.bias.requires_grad, isinstance(m.weight, ns.nn.Parameter),
        )  # fmt: skip

    agree(program, torch)


def test_values_are_converted(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Linear(2, 1)
        m.load_state_dict({"weight": ns.ones(1, 2, dtype=ns.float64), "bias": ns.ones(1).half()})
        return m.weight, str(m.weight.dtype).partition(".")[2]

    agree(program, torch)


def test_single_numbers_from_vectors_of_one(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.BatchNorm1d(1)
        state = dict(m.state_dict())
        state["num_batches_tracked"] = ns.tensor([4])
        m.load_state_dict(state)
        return m.num_batches_tracked

    agree(program, torch)


def test_states_without_metadata_may_lack_the_counter(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = model(ns)
        m[1].num_batches_tracked.fill_(3)
        state = {n: v for n, v in m.state_dict().items() if "num_batches" not in n}
        m.load_state_dict(state)
        return m[1].num_batches_tracked

    agree(program, torch)


def test_shared_tensors(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Module()
        m.a = ns.nn.Linear(2, 2)
        m.b = ns.nn.Linear(2, 2)
        m.b.weight = m.a.weight
        state = m.state_dict()
        m.load_state_dict({name: value + 1 for name, value in state.items()})
        return list(state), m.a.weight is m.b.weight, len(list(m.parameters()))

    agree(program, torch)


def test_extra_state(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Counting(ns.nn.Module):  # type: ignore[misc,name-defined]
            count = 0

            def get_extra_state(self) -> Any:
                return {"count": self.count}

            def set_extra_state(self, state: Any) -> None:
                self.count = state["count"]

        m = ns.nn.Sequential(Counting())
        m[0].count = 3
        state = m.state_dict()
        m[0].count = 0
        m.load_state_dict(state)
        return dict(state), m[0].count

    agree(program, torch)
    refuse(lambda ns: ns.nn.Module().get_extra_state(), torch)


def test_subclasses_may_rename_entries(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        class Renamed(ns.nn.Linear):  # type: ignore[misc,name-defined]
            def _load_from_state_dict(
                self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool,
                missing_keys: Any, unexpected_keys: Any, error_msgs: Any,
            ) -> None:  # fmt: skip
                if prefix + "w" in state_dict:
                    state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
                super()._load_from_state_dict(
                    state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                    error_msgs,
                )  # fmt: skip

        m = ns.nn.Sequential(Renamed(2, 1))
        m.load_state_dict({"0.w": ns.ones(1, 2), "0.bias": ns.ones(1)})
        return m[0].weight

    agree(program, torch)


def test_buffers_that_are_not_saved(torch: ModuleType) -> None:
    def program(ns: Any) -> Any:
        m = ns.nn.Module()
        m.register_buffer("kept", ns.ones(1))
        m.register_buffer("scratch", ns.ones(1), persistent=False)
        m.register_buffer("scratch", ns.zeros(1))
        first = list(m.state_dict())
        m.register_buffer("kept", ns.ones(1), persistent=False)
        return first, list(m.state_dict())

    agree(program, torch)


def test_loading_does_not_touch_the_graph() -> None:
    m = nn.Linear(2, 2)
    m.load_state_dict(m.state_dict())
    assert m.weight.is_leaf and m.weight.requires_grad
