"""Runs the checks of a program, functions named ``check_...``, on every rank.

``python -m tests.distributed.checks module folder`` writes the errors of rank r to ``r.json``.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

import evergrad.distributed as dist


def names(program: str) -> list[str]:
    module = import_module(f"tests.distributed.programs.{program}")
    return [name for name in vars(module) if name.startswith("check_")]


def main(program: str, folder: str) -> None:
    dist.init_process_group()
    module = import_module(f"tests.distributed.programs.{program}")
    errors = {}
    for name in names(program):
        start = time.perf_counter()
        try:
            getattr(module, name)()
            errors[name] = ""
        except Exception:
            errors[name] = traceback.format_exc()
        if dist.get_rank() == 0:
            print(f"{name} {time.perf_counter() - start:.2f} s", errors[name], flush=True)
    (Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(errors))


if __name__ == "__main__":
    main(*sys.argv[1:])
