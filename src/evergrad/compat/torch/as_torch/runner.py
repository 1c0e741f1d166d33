"""Running a program the way Python's own command line does."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

import evergrad

from .finder import install

USAGE = "usage: python -m evergrad.as_torch (script.py | -m module | -c code) [arguments ...]"

_PACKAGE = os.path.dirname(evergrad.__file__)
# Where PyTorch's frames would be native code and not be shown.
_HIDDEN = tuple(os.path.join(_PACKAGE, name) for name in ("compat", "core", "ops", "lazy.py"))


def main(arguments: list[str]) -> int:
    """Run what the command line says; gives the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    kind, *rest = arguments
    if kind in ("-m", "-c"):
        if not rest:
            return _refuse(f"argument expected for the {kind} option")
        run: Callable[..., None] = _run_module if kind == "-m" else _run_code
        return _guarded(run, rest[0], rest[1:])
    if not os.path.exists(kind):
        return _refuse(f"can't open file {kind!r}: no such file")
    return _guarded(_run_script, kind, rest)


def _refuse(reason: str) -> int:
    print(f"evergrad.as_torch: {reason}\n{USAGE}", file=sys.stderr)
    return 2


def _guarded(run: Callable[..., None], what: str, arguments: list[str]) -> int:
    """Run, and report an error as Python does, without the frames that are not the program's."""
    install()
    try:
        run(what, arguments)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        trim(error)
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _run_script(path: str, arguments: list[str]) -> None:
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    source = Path(path).read_bytes()
    _execute(source, path, __file__=path)


def _run_code(code: str, arguments: list[str]) -> None:
    sys.argv = ["-c", *arguments]
    sys.path[0] = ""
    _execute(code, "<string>")


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv = ["-m", *arguments]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _execute(source: bytes | str, name: str, **namespace: object) -> None:
    """Run source code as the module ``__main__``, which stays, so that its classes can be found."""
    module = ModuleType("__main__")
    module.__dict__.update(namespace, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    program = compile(source, name, "exec", dont_inherit=True)
    exec(program, module.__dict__)


def trim(error: BaseException | None) -> None:
    """Take the frames that are not the program's out of an error and of what led to it."""
    while error is not None:
        error.__traceback__ = _shown(error.__traceback__)
        error = error.__cause__ or error.__context__


def _shown(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    kept = [t for t in frames if not _is_hidden(t.tb_frame.f_code.co_filename)]
    shown: TracebackType | None = None
    for t in reversed(kept):
        shown = TracebackType(shown, t.tb_frame, t.tb_lasti, t.tb_lineno)
    return shown


def _is_hidden(filename: str) -> bool:
    return filename.startswith((*_HIDDEN, "<frozen ")) or filename == runpy.__file__


def run_command_line() -> NoReturn:
    """What ``python -m evergrad.as_torch`` does."""
    sys.exit(main(sys.argv[1:]))
