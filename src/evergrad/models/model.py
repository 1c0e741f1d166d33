"""What all models share: they are made of one dataclass of options, which is checked."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Self

import evergrad as eg
from evergrad import nn


class Model(nn.Module):
    """A module with the options it was made of as ``config``."""

    config_type: ClassVar[type]

    def __init__(self, config: object) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def from_config(cls, options: Mapping[str, object]) -> Self:
        """A model with new weights from options by name, as a configuration file holds them."""
        known = [field.name for field in dataclasses.fields(cls.config_type)]
        for name in options:
            if name not in known:
                raise ValueError(f"{cls.__name__} has no option {name!r}; {nearest(name, known)}")
        return cls(cls.config_type(**options))


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, modules are in evaluation mode and gradients are off; then all is as before."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with eg.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def nearest(name: str, known: Collection[str]) -> str:
    """The fix for a name that is not known."""
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(known))}"


def require(holds: bool, problem: str, fix: str) -> None:
    """Options that make no sense are an error that says the fix."""
    if not holds:
        raise ValueError(f"{problem}.\n  fix: {fix}.")


def require_positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        require(value >= 1, f"{name} is {value}", f"give {name} a whole number of at least 1")


def require_probability(config: object, name: str) -> None:
    value = getattr(config, name)
    require(0 <= value < 1, f"{name} is {value}", f"choose {name} from 0 up to, not including, 1")


def require_choice(config: object, name: str, choices: Collection[object]) -> None:
    value = getattr(config, name)
    known = " or ".join(repr(choice) for choice in choices)
    require(value in choices, f"{name} is {value!r}", f"{name} may be {known}")


def require_divides(config: object, part: str, whole: str) -> None:
    """Such as the heads of an attention, among which its width is shared out evenly."""
    count, total = getattr(config, part), getattr(config, whole)
    below, above = total // count * count, -(-total // count) * count
    values = str(above) if below == 0 else f"{below} or {above}"
    require(
        total % count == 0,
        f"{part} ({count}) does not divide {whole} ({total})",
        f"choose {whole} {values}, or {part} among the divisors of {total}",
    )
