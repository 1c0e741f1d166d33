"""The tour runs, and the generated pages are those the table gives now."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOUR = runpy.run_path(str(ROOT / "docs" / "tour.py"))


@pytest.mark.parametrize("stop", TOUR["STOPS"], ids=lambda stop: stop.__name__)
def test_tour(stop: object) -> None:
    stop()  # type: ignore[operator]


def test_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


API = (ROOT / "docs" / "api.md").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "`loop(", "`plan(", "`explain(", "`manual_seed(", "`load_state_dict(", "`named_parameters(",
        "## evergrad.models", "## evergrad.train", "## evergrad.as_torch", "`GPTConfig(",
        "`compile(", "## evergrad.utils.data.DataLoader",
    ],
)  # fmt: skip
def test_the_reference_is_complete(name: str) -> None:
    assert name in API


def test_the_reference_leaks_no_paths_and_addresses() -> None:
    assert " at 0x" not in API and "/home/" not in API and str(ROOT) not in API
    assert "<object object" not in API
    for line in API.splitlines():
        assert "Path('/" not in line, line


README = (ROOT / "README.md").read_text()


def test_the_readme_is_short_and_its_example_runs() -> None:
    assert len(README.splitlines()) <= 120
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.splitlines()) <= 26
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_of_the_readme_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_commands_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets
    for module in re.findall(r"python -m (bench[.\w]+)", README):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module
    from evergrad.cli.main import COMMANDS

    used = set(re.findall(r"(?:^|`|bin/)evergrad ([a-z]+)", README, re.MULTILINE))
    assert used <= set(COMMANDS)
