"""Keyword arguments that a function does not take: the error names the nearest that it does."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import evergrad as eg
import evergrad.nn.functional as F
from evergrad import nn, optim

CALLS: dict[str, Callable[[], Any]] = {
    "bias": lambda: nn.Linear(2, 3, bais=True),  # type: ignore[call-arg]
    "num_layers": lambda: nn.LSTM(2, 3, num_layer=2),  # type: ignore[call-arg]
    "eps": lambda: nn.LayerNorm(2, epsilon=1e-3),  # type: ignore[call-arg]
    "lr": lambda: optim.AdamW([eg.ones(1)], lrr=1),  # type: ignore[call-arg]
    "gamma": lambda: optim.lr_scheduler.StepLR(None, 1, gama=0.5),  # type: ignore
    "batch_size": lambda: eg.utils.data.DataLoader([1], batchsize=2),  # type: ignore
    "dim": lambda: eg.softmax(eg.ones(2), dmi=0),  # type: ignore[call-arg]
    "keepdim": lambda: eg.ones(2).sum(0, keep_dim=True),  # type: ignore[call-overload]
    "approximate": lambda: F.gelu(eg.ones(2), aproximate="tanh"),  # type: ignore[call-arg]
    "dtype": lambda: eg.zeros(2, dtyp=eg.int64),  # type: ignore
    "generator": lambda: eg.rand(2, generater=None),  # type: ignore
    "scale": lambda: eg.distributions.Normal(0.0, scal=1.0),  # type: ignore[call-arg]
    "fullgraph": lambda: eg.compile(lambda x: x, fullgrap=True),  # the others have no effect
    "stride": lambda: F.conv1d(eg.ones(1, 1, 3), eg.ones(1, 1, 1), strid=2),  # type: ignore
}


@pytest.mark.parametrize("keyword", CALLS)
def test_the_nearest_keyword_is_suggested(keyword: str) -> None:
    # From CPython 3.13 on the interpreter suggests some itself.
    said = rf"unexpected keyword.*(; did|\. Did) you mean '{keyword}'\?"
    with pytest.raises(TypeError, match=said):
        CALLS[keyword]()


def test_nothing_is_suggested_for_a_keyword_like_none() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'zzz'$"):
        nn.Linear(2, 3, zzz=1)  # type: ignore[call-arg]


def test_errors_from_within_a_constructor_stay() -> None:
    class Wrong(nn.Sequential):
        def __init__(self) -> None:
            nn.Sequential.__init__(self, nn.Linear(2, 3, bais=True))

    with pytest.raises(TypeError, match=r"Linear.__init__.*did you mean 'bias'") as caught:
        Wrong()
    assert str(caught.value).count("did you mean") == 1


def test_signatures_show_names_and_defaults() -> None:
    for layer in (nn.LSTM, nn.Conv2d, optim.AdamW, eg.utils.data.DataLoader):
        parameters = inspect.signature(layer).parameters
        kinds = {p.kind for p in parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
        assert any(p.default is not p.empty for p in parameters.values())


def test_warnings_of_constructors_name_the_line_of_the_call() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nn.LSTM(2, 3, dropout=0.5)
        nn.Hardtanh(min_value=-1.0)
    assert [w.filename for w in caught] == [__file__] * 2
