"""An exception on its way from one process to another."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import NoReturn


class _Verbatim(str):
    """A message that ``KeyError`` shows with its line breaks, not as a quoted string."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Failure:
    """The class of an exception, and where and why it was raised."""

    kind: type[BaseException]
    message: str

    @classmethod
    def of(cls, error: BaseException, where: str) -> Failure:
        """What can be told of an exception; a class that cannot be sent becomes RuntimeError."""
        trace = "".join(traceback.format_exception(error))
        message = f"Caught {type(error).__name__} {where}.\nOriginal {trace}"
        return cls(type(error) if _can_be_sent(type(error)) else RuntimeError, message)

    def reraise(self) -> NoReturn:
        """Raise the exception again, with the trace of the other process in its message."""
        if self.kind is KeyError:
            raise KeyError(_Verbatim(self.message))
        try:
            error = self.kind(self.message)
        except Exception:  # a class that wants other arguments
            error = RuntimeError(self.message)
        raise error


def _can_be_sent(kind: type) -> bool:
    try:
        return pickle.loads(pickle.dumps(kind)) is kind
    except Exception:
        return False
