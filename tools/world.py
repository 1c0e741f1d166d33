"""The packages of the PyTorch world, run on evergrad and on PyTorch, and compared.

Every program in ``tools/world/programs`` is a small real use of a package (a training step whose
loss falls, a file that is saved and loaded, generation) that prints its numbers as JSON on the last
line. It runs twice, in processes of its own: ``python -m evergrad.as_torch program.py`` where no
PyTorch is installed, and ``python program.py`` with PyTorch. The table says for each package
whether it imports, whether the program runs, by how much the numbers differ at most, and what
stopped it first.

    python tools/world.py                      # every program
    python tools/world.py einops transformers  # only these
    python tools/world.py --core               # the ten that continuous integration holds

The environments live in ``--cache``: packages are installed without their dependencies from
``tools/world/constraints.txt``, so PyTorch is not among them. ``--torch`` names an interpreter that
has PyTorch 2.13.0; it defaults to the one that runs this tool.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORLD = ROOT / "tools" / "world"
PROGRAMS = WORLD / "programs"
CONSTRAINTS = WORLD / "constraints.txt"
TABLE = WORLD / "packages.toml"
# Relative to the larger of 1 and PyTorch's number: float32 over a few training steps.
TOLERANCE = 1e-4


@dataclass
class Package:
    """A row of ``packages.toml``."""

    name: str  # the program's name
    imports: str  # the module whose import is tried first
    requires: list[str]  # distributions, installed without dependencies
    core: bool = False


@dataclass
class Result:
    """A row of the table."""

    package: str
    imports: bool
    runs: bool
    difference: float | None
    blocker: str

    @property
    def is_equal(self) -> bool:
        return self.runs and self.difference is not None and self.difference <= TOLERANCE


def read_packages() -> list[Package]:
    """The table of packages, in its order."""
    rows = tomllib.loads(TABLE.read_text())
    return [Package(name=name, **row) for name, row in rows.items()]


class Environments:
    """A folder of packages that two interpreters share; only one of them has PyTorch."""

    def __init__(self, cache: Path, torch_python: str) -> None:
        self.cache = cache
        self.site = cache / "site"
        self.only_torch = cache / "site_torch"
        self.python = cache / "eg" / "bin" / "python"
        self.torch_python = torch_python

    def prepare(self, packages: list[Package]) -> None:
        """Install what is not installed yet, in the versions of the constraints file."""
        if not self.python.exists():
            venv.create(self.cache / "eg", with_pip=True)
        shared = tomllib.loads((WORLD / "light.toml").read_text())
        if not (self.site / "numpy").exists():
            self._install(self.site, shared["light"])
        if not self.only_torch.exists():
            self._install(self.only_torch, shared["with_torch"], "--no-deps")
        wanted = {name for package in packages for name in package.requires}
        missing = sorted(name for name in wanted if not self._has(name))
        if missing:
            self._install(self.site, missing, "--no-deps")

    def _has(self, distribution: str) -> bool:
        stem = re.sub(r"[-_.]+", "_", distribution).lower()
        found = (path.name.lower() for path in self.site.glob("*.dist-info"))
        return any(
            re.sub(r"[-_.]+", "_", n.rsplit("-", 1)[0]) == stem
            or re.sub(r"[-_.]+", "_", n.split("-")[0]) == stem
            for n in found
        )

    def _install(self, target: Path, names: list[str], *options: str) -> None:
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--target", str(target)]
        subprocess.run([*command, *options, "--constraint", str(CONSTRAINTS), *names], check=True)

    def on_evergrad(self, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((str(ROOT / "src"), str(self.site)))
        return self._run([str(self.python), "-m", "evergrad.as_torch", *arguments], path, timeout)

    def on_torch(self, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((str(WORLD / "oracle"), str(self.site), str(self.only_torch)))
        return self._run([self.torch_python, *arguments], path, timeout)

    def _run(
        self, command: list[str], path: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        surroundings = {
            **os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch",
            "OMP_NUM_THREADS": "1", "EVERGRAD_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
            "PYTHONHASHSEED": "0",
        }  # fmt: skip
        (self.cache / "run").mkdir(parents=True, exist_ok=True)
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=False, env=surroundings,
                cwd=self.cache / "run", timeout=timeout,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", f"no end after {timeout:g} s")


def numbers_of(output: str) -> list[float]:
    """The numbers of the JSON on the last line, in order."""
    return list(_flatten(json.loads(output.strip().splitlines()[-1])))


def _flatten(value: Any) -> Any:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _flatten(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from _flatten(item)
    else:
        yield float(value)


def largest_difference(ours: list[float], theirs: list[float]) -> float:
    """Relative to the larger of 1 and PyTorch's number; infinite where one is not finite."""
    if len(ours) != len(theirs):
        return float("inf")
    gaps = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, theirs, strict=True) if a != b]
    return max((gap if gap == gap else float("inf") for gap in gaps), default=0.0)


def blocker_of(error: str) -> str:
    """The last line of an error that says something."""
    lines = [line for line in error.strip().splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (named or lines or ["(no message)"])[-1][:160]


def expected_numbers(package: Package, rooms: Environments, timeout: float) -> list[float]:
    """PyTorch's numbers. They are kept, under the program's text: it is their only input."""
    program = PROGRAMS / f"use_{package.name}.py"
    kept = rooms.cache / "expected" / f"{package.name}.json"
    text = program.read_text() + CONSTRAINTS.read_text()
    if kept.exists():
        entry = json.loads(kept.read_text())
        if entry["text"] == text:
            return list(entry["numbers"])
    done = rooms.on_torch(str(program), timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"PyTorch itself: {blocker_of(done.stderr)}")
    numbers = numbers_of(done.stdout)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"text": text, "numbers": numbers}))
    return numbers


def judge(package: Package, rooms: Environments, timeout: float) -> Result:
    """Import it, run its program in both environments, compare."""
    program = PROGRAMS / f"use_{package.name}.py"
    done = rooms.on_evergrad(str(program), timeout=timeout)
    if done.returncode:
        imported = rooms.on_evergrad("-c", f"import {package.imports}", timeout=timeout)
        blocker = blocker_of(done.stderr)
        return Result(package.name, imported.returncode == 0, False, None, blocker)
    try:
        expected = expected_numbers(package, rooms, timeout)
    except RuntimeError as error:
        return Result(package.name, True, True, None, str(error))
    difference = largest_difference(numbers_of(done.stdout), expected)
    blocker = "" if difference <= TOLERANCE else "numbers differ"
    return Result(package.name, True, True, difference, blocker)


def row(result: Result) -> str:
    difference = "" if result.difference is None else f"{result.difference:.1e}"
    imports, runs = ("yes" if flag else "no" for flag in (result.imports, result.runs))
    return f"{result.package:<26} {imports:<8} {runs:<5} {difference:<9} {result.blocker}"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", help="names of programs; all when left out")
    parser.add_argument("--core", action="store_true", help="only the core of ten")
    parser.add_argument(
        "--cache", type=Path, default=Path.home() / ".cache" / "evergrad-world",
        help="where the environments live",
    )  # fmt: skip
    parser.add_argument("--torch", default=sys.executable, help="an interpreter with PyTorch")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one program")
    parser.add_argument("--no-install", action="store_true", help="use the cache as it is")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Print the table; the exit code is 0 if every program runs with equal numbers."""
    options = parse(arguments)
    chosen = [
        package for package in read_packages()
        if (not options.packages or package.name in options.packages)
        and (not options.core or package.core)
    ]  # fmt: skip
    rooms = Environments(options.cache.resolve(), options.torch)
    if not options.no_install:
        rooms.prepare(chosen)
    print(f"{'package':<26} {'imports':<8} {'runs':<5} {'largest':<9} first blocker")
    results = []
    for package in chosen:
        results.append(judge(package, rooms, options.timeout))
        print(row(results[-1]), flush=True)
    equal = sum(result.is_equal for result in results)
    print(f"{equal} of {len(results)} run unchanged with equal numbers")
    return 0 if equal == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
