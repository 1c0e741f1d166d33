"""Docstrings of public names: each teaches, and every example in them runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn, optim, ragged
from evergrad.core.tensor import Tensor
from evergrad.ops.reference import DOCS
from evergrad.ops.surface.public import FUNCTIONS
from evergrad.utils import data

NAMESPACES = [
    "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler", "utils.data",
    "func", "autograd", "linalg", "fft", "special", "random", "distributions", "amp", "sparse",
    "nested", "ragged", "memory", "compiler",
]  # fmt: skip
GLOBALS = {
    **{name: getattr(data, name) for name in data.__all__},
    "eg": eg,
    "nn": nn,
    "F": F,
    "optim": optim,
    "np": np,
    "ragged": ragged,
}


def public() -> Iterator[tuple[str, Any]]:
    """Every public name with a docstring, methods of classes included."""
    for name, function in FUNCTIONS.items():
        yield name, function
    for name, value in vars(Tensor).items():
        if not name.startswith("_") and value.__doc__ != getattr(FUNCTIONS.get(name), "__doc__", 0):
            yield f"Tensor.{name}", value
    for path in NAMESPACES:
        module = importlib.import_module(f"evergrad.{path}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            yield f"{path}.{name}", value
            if inspect.isclass(value):
                for member, method in vars(value).items():
                    if not member.startswith("_") and callable(method):
                        yield f"{path}.{name}.{member}", method


def test_every_example_runs() -> None:
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=flags)
    seen: set[str] = set()
    said: list[str] = []
    for name, value in public():
        doc = inspect.getdoc(value)
        if doc and ">>>" in doc and doc not in seen:
            seen.add(doc)
            runner.run(parser.get_doctest(doc, dict(GLOBALS), name, None, 0), out=said.append)
    assert not runner.failures, "".join(said)
    assert runner.tries > 500


def test_every_entry_of_the_reference_is_shown_somewhere() -> None:
    shown = {inspect.cleandoc(value.__doc__) for _, value in public() if value.__doc__}
    missing = [name for name, doc in DOCS.items() if inspect.cleandoc(doc) not in shown]
    assert not missing


@pytest.mark.parametrize(
    "name", ["softmax", "matmul", "cat", "where", "tensor", "sum", "max", "einsum", "gather"]
)
def test_help_teaches(name: str) -> None:
    doc = inspect.getdoc(getattr(eg, name)) or ""
    assert "Args:" in doc and ">>>" in doc
    for parameter in inspect.signature(getattr(eg, name)).parameters:
        assert parameter in ("out", "args") or f"    {parameter}:" in doc, parameter


def test_most_functions_and_layers_have_an_example() -> None:
    """Forms that write in place or copy, and older names, refer to the function they follow."""
    modules: dict[str, dict[str, Any]] = {"": FUNCTIONS}
    for path in ("nn", "nn.functional", "optim"):
        module = importlib.import_module(f"evergrad.{path}")
        modules[path] = {name: getattr(module, name) for name in module.__all__}
    for path, least in (("", 0.80), ("nn", 0.40), ("nn.functional", 0.65), ("optim", 0.85)):
        found = [value for value in modules[path].values() if callable(value)]
        taught = [value for value in found if ">>>" in (value.__doc__ or "")]
        assert len(taught) >= least * len(found), (path, len(taught), len(found))
