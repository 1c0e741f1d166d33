"""What to do where a function is no single program: a fix for each kind of reason."""

from __future__ import annotations

import re

from evergrad.core.source_location import user_line
from evergrad.errors import TraceError

# The first pattern that is found in a reason has its fix; the general ones are last.
_FIXES = tuple(
    (re.compile(pattern), fix) for pattern, fix in (
        ("printed", "return the tensor and print it outside of the function"),
        ("memory that is shared with NumPy|share memory through NumPy",
         "use a clone() of the tensor, or write to a tensor whose memory no NumPy array shows"),
        ("the gradient of an embedding is sparse|a sparse gradient is left behind",
         "use the gradient up inside of the function (optimizer.step(), then zero_grad()), or make "
         "the embedding with sparse=False"),
        ("^an iterator is resumed|is an iterator$|a generator that the function makes",
         "call next() outside of the function and pass what it returns as an argument"),
        ("new at nearly every call", "pad to a few sizes, or pass numbers as tensors"),
        ("was resized", "make a new tensor of that size"),
        (r"^\.data of|the memory of a tensor (is replaced|whose data)|former memory of a tensor",
         "write to the elements with copy_() under no_grad()"),
        (r"(seed|get_state|set_state|using_generator)\(\)|using_generator|a Generator was made",
         "make, seed and restore generators outside of the function"),
        ("the storage of a", "read the storage outside of the function"),
        ("a number of the data was read",
         "return the number, and make texts, keys and NumPy arrays of it outside of the function"),
        ("the elements of (an argument|an outside tensor)|a number of the data is read",
         "keep the computation in tensors (`evergrad.where` instead of `if`), or pass the number "
         "as a Python argument"),
        ("the value of a traced tensor was read",
         "keep the computation in tensors (`evergrad.where` instead of `if`), or read the value "
         "outside of the function"),
        ("a clock is read after operations",
         "read the clock outside of the function, or only return and store what it returns"),
        ("an impure function", "call it outside of the function and pass what it returns"),
        ("random numbers of Python or NumPy|makes a source of random numbers|is drawn$",
         "draw them outside of the function and pass them as arguments, or draw with evergrad"),
        ("the backward function of a custom function",
         "call backward() inside of the function, or move the effect to forward()"),
        ("hook", "register and remove hooks outside of the function"),
        ("a mode is changed|filters of warnings|context of decimals|environment variable|"
         "changes a setting|(set_|use_|seterr)",
         "change it outside of the function, or set it back"),
        ("requires_grad|retains its gradient", "set requires_grad outside of the function"),
        ("^Python reads ", "read it outside of the function"),
        ("becomes a gradient|the gradient of an argument|a gradient is an argument",
         "set .grad outside of the function, or to a clone() of the tensor"),
        ("a tensor among the arguments has attributes",
         "pass the attributes as arguments of their own"),
        ("has a history|gets a history|is differentiated|can be differentiated|a leaf that the",
         "detach() what need not be differentiated, or call backward() outside of the function"),
        ("not contiguous", "pass a contiguous() tensor"),
        ("an argument (is|was|that)|another view of an argument",
         "write to a clone() of the argument"),
        ("is read by an optimizer and changed",
         "set the option outside of the function, before the call"),
        ("is given a value of another kind|is a number that the function changes|is appended to|"
         "is changed for the first time",
         "none is needed if this happens at the first calls only: a later call is a program"),
        ("kept by the function|is changed|Python keeps|reached through another place",
         "return the value, and store it outside of the function"),
        ("that the function makes is returned|is returned$|holds computed tensors",
         "return its tensors and numbers, and make the object outside of the function"),
        (r"is called$|is called in |is used$|is a \w+$|is the module",
         "call it outside of the function and pass what it returns"),
    )
)  # fmt: skip


def fix_for(reason: str) -> str | None:
    """What to do about a reason why a call is no single program; ``None`` if that is not known."""
    what = reason.partition(", at ")[0]  # without the line of code
    return next((fix for pattern, fix in _FIXES if pattern.search(what)), None)


def with_fix(reason: str) -> str:
    """A reason, and what to do about it."""
    fix = fix_for(reason)
    return reason if fix is None else f"{reason}\n  fix: {fix}."


def trace_error(what: str) -> TraceError:
    """The error of a function that has to be one program, at what ends its graph."""
    text = with_fix(f"{what}, which ends the graph of a function that has to be one program.")
    head, _, fix = text.partition("\n")
    return TraceError(f"{head}\n  where: {user_line()}" + (f"\n{fix}" if fix else ""))
