"""The documentation: notebooks and examples run; the site builds, with links to what there is."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.ipynb"))
# Pages whose Python blocks are whole programs.
PROGRAMS = ["index.md", "how-to/debug-nan.md", "how-to/write-an-op.md", "how-to/own-task.md"]


def cells(path: Path) -> list[str]:
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "tutorial.py"
    program.write_text("\n".join(cells(path)))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)], cwd=tmp_path, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_results(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL):
        program = tmp_path / "program.py"
        program.write_text(block)
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
        assert done.returncode == 0, block + done.stderr


def test_the_task_of_the_page_can_be_trained(tmp_path: Path) -> None:
    text = (DOCS / "how-to" / "own-task.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "sine.py").write_text(block)
    pytest.importorskip("click")
    again = ["runs/sine", "--resume", "--steps", "60", "--trust-task", "sine:Sine"]
    for words in (["sine:Sine", "--tiny"], again):
        done = subprocess.run(
            [sys.executable, "-c", "from evergrad.cli.main import main; main()", "train", *words],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


# -- the site -------------------------------------------------------------------------------------


class Links(HTMLParser):
    """The links of a page, what it loads, and the anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if name == "src" or (name == "href" and tag == "link"):
                self.loaded.append(value or "")
            elif name == "href":
                self.links.append(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install 'evergrad[docs]'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_links_lead_somewhere(site: Path) -> None:
    pages = {path: Links(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 40
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            if link.startswith(("data:", "mailto:", "javascript:")):
                continue
            target, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+://", target):
                continue
            place = (path.parent / target).resolve() if target else path
            missing = not place.exists()
            if missing or (place in pages and anchor not in pages[place].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        outside = [source for source in Links(path).loaded if re.match(r"(https?:)?//", source)]
        assert outside == [], path
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"url\(\s*[\"']?(?:https?:)?//", styles) and "@import" not in styles


def test_search_and_both_colour_schemes_are_there(site: Path) -> None:
    text = (site / "index.html").read_text()
    assert 'data-md-color-scheme="default"' in text and 'data-md-color-scheme="slate"' in text
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert any("manual_seed" in entry["text"] for entry in index["docs"])
