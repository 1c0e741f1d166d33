"""Spellings of the tiny training step that decide by values of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]
Maker = Callable[[Any, Any], Call]


def decision_spellings(make_parts: Callable[..., Any]) -> dict[str, Maker]:
    """Each spelling by name; ``make_parts`` makes a model with its optimizer and batch."""
    found: dict[str, Maker] = {}

    def spelling(decide: Callable[[Any, Any, Any], Any]) -> None:
        def maker(lib: Any, wrap: Any) -> Call:
            p = make_parts(lib)
            step = wrap(lambda x, y: decide(p, x, y))
            return lambda: step(p.x, p.y)

        found[decide.__name__.replace("_", " ")] = maker

    @spelling
    def return_where_the_loss_is_large(p: Any, x: Any, y: Any) -> Any:
        p.optimizer.zero_grad()
        loss = p.loss(x, y)
        if loss.item() > 100:
            return None
        loss.backward()
        p.optimizer.step()
        return loss.detach()

    @spelling
    def skip_where_the_loss_is_nan(p: Any, x: Any, y: Any) -> Any:
        p.optimizer.zero_grad()
        loss = p.loss(x, y)
        loss.backward()
        if loss.isnan():
            return None
        p.optimizer.step()
        return loss.detach()

    @spelling
    def assert_that_the_loss_is_finite(p: Any, x: Any, y: Any) -> Any:
        loss = p.train(x, y)
        assert math.isfinite(loss.item())
        return loss

    @spelling
    def skip_where_the_norm_is_large(p: Any, x: Any, y: Any) -> Any:
        p.optimizer.zero_grad()
        loss = p.loss(x, y)
        loss.backward()
        if p.lib.nn.utils.clip_grad_norm_(p.model.parameters(), 1.0) < 1e6:
            p.optimizer.step()
        return loss.detach()

    @spelling
    def a_while_loop_of_three_steps(p: Any, x: Any, y: Any) -> Any:
        count = 0
        loss = p.loss(x, y)
        while count < 3 and loss.item() > 1e-9:
            p.optimizer.zero_grad()
            loss.backward()
            p.optimizer.step()
            loss = p.loss(x, y)
            count += 1
        return loss.detach()

    return found
