"""The audit names parameters without a sound gradient."""

from __future__ import annotations

from typing import Any

import pytest

import evergrad as eg
from evergrad.autograd import audit
from evergrad.errors import GradientError
from twins import fixed, leaf


def parameters() -> dict[str, Any]:
    """One parameter of every fate, after a backward pass."""
    named = {
        name: leaf(eg, [1.0, 2.0]) for name in ("sound", "missing", "zero", "infinite", "undefined")
    }
    named["frozen"] = fixed(eg, [1.0])
    loss = (
        named["sound"] * 3 + named["zero"] * 0 + named["infinite"] * fixed(eg, [1.0, float("inf")])
        + named["undefined"] * float("nan")
    )  # fmt: skip
    loss.sum().backward()
    return named


def test_every_fault_is_named() -> None:
    report = audit(parameters())
    assert not report
    assert {f.name: f.problem for f in report.findings} == {
        "missing": "missing",
        "zero": "zero",
        "infinite": "non-finite",
        "undefined": "non-finite",
    }
    assert report.checked == 5 and report.frozen == ("frozen",)
    text = str(report)
    assert "5 parameters checked, 4 at fault" in text
    assert "infinite [2]: non-finite (1 of 2 elements)" in text
    assert "requires_grad=False): frozen" in text
    with pytest.raises(GradientError, match="missing \\[2\\]: missing"):
        report.raise_if_wrong()


def test_many_frozen_parameters_are_counted() -> None:
    report = audit({f"p{i}": fixed(eg, [1.0]) for i in range(20)})
    assert len(report.frozen) == 20
    assert "p7 and 12 more" in str(report) and "p8" not in str(report)


def test_sound_gradients_pass() -> None:
    x = leaf(eg, [1.0, 2.0])
    (x * 2).sum().backward()
    report = audit([x])
    assert report and report.findings == ()
    assert report.raise_if_wrong() is report


def test_an_empty_gradient_is_sound() -> None:
    x = leaf(eg, [])
    (x * 2).sum().backward()
    assert audit(x)


class Model:
    """What a module has that the audit asks for."""

    def named_parameters(self) -> Any:
        return iter([("layer.weight", leaf(eg, [1.0]))])


FORMS = {
    "a module": (Model, "layer.weight"),
    "a tensor": (lambda: leaf(eg, [1.0]), "parameter"),
    "a dict": (lambda: {"w": leaf(eg, [1.0])}, "w"),
    "a list": (lambda: [leaf(eg, [1.0])], "parameter 0"),
    "pairs": (lambda: [("bias", leaf(eg, [1.0]))], "bias"),
    "a generator": (lambda: (p for p in [leaf(eg, [1.0])]), "parameter 0"),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_can_be_audited(name: str) -> None:
    make, expected = FORMS[name]
    target = make()
    (finding,) = audit(target).findings
    assert (finding.name, finding.problem) == (expected, "missing")


def test_other_things_cannot() -> None:
    with pytest.raises(TypeError, match="not int"):
        audit(3)
