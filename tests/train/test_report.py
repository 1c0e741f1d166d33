"""The report of a run: what it tells, and that it can be made of whatever a run has left."""

from __future__ import annotations

import base64
import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evergrad.train.config import ConfigError
from evergrad.train.records import read_run

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'evergrad[app]'")
image = pytest.importorskip("PIL.Image", reason="pillow is not installed: see evergrad[app]")

from evergrad.train.plots import draw_plots, drawable_lines, spread  # noqa: E402
from evergrad.train.report import page, write_report  # noqa: E402

MEMORY = {
    "gradients": {"planned": 512, "measured": None, "note": "part of activations, not added"},
    "peak": {"planned": 2048, "measured": 1024},
}
PLOTS = {"loss", "learning_rate", "memory", "speed", "samples"}


def step_line(step: int, **changes: Any) -> dict[str, Any]:
    numbers = {
        "loss": 4 / step,
        "lr": 1e-3,
        "norm": 1.0,
        "units_per_second": 2e4,
        "time": 0.1 * step,
    }
    return {"step": step, **numbers, "live": 20 << 20, "peak": 30 << 20, **changes}


LINES: list[dict[str, Any]] = [
    step_line(10),
    step_line(20),
    {"step": 20, "evaluation": {"loss": 1.75, "accuracy": 0.5}},
    {"step": 20, "sample": {"text": "costs $5 & <b>more</b> 日本"}},
    step_line(30),
    {"step": 30, "evaluation": {"loss": 1.5, "accuracy": 0.625}},
    {"step": 30, "sample": {"image": "samples/step-000030.png"}},
    step_line(40),
    {"step": 40, "evaluation": {"loss": 1.625, "accuracy": 0.75}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a whole run."""
    make_run(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files of a whole run's report, to look at."""
    path = tmp_path_factory.mktemp("run")
    make_run(path)
    return write_report(path)


def make_run(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    colours = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    image.fromarray(colours).save(tmp_path / "samples" / "step-000030.png")
    (tmp_path / "config.toml").write_text('name = "a <run>"\ntask = "gpt"\nsteps = 40\n')
    (tmp_path / "memory.json").write_text(json.dumps(MEMORY))
    write_lines(tmp_path, LINES)


def write_lines(folder: Path, lines: list[dict[str, Any]], rest: bytes = b"") -> None:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (folder / "metrics.jsonl").write_bytes(text + rest)


def png_size(data: bytes) -> tuple[int, int]:
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


class Page(HTMLParser):
    """The text of a page, its pictures, and everything it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.sources: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], "every tag is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        assert tag not in ("link", "iframe")
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self.text += data + "\n"


def test_a_whole_run_gives_pictures_and_a_page(written: list[Path]) -> None:
    *pictures, page_file = written
    assert {path.stem for path in pictures} == PLOTS
    assert page_file.name == "report.html"
    for path in pictures:
        assert min(png_size(path.read_bytes())) > 200
    assert not list(page_file.parent.glob(".*"))  # nothing half-written stays


def test_the_page_tells_everything_and_needs_nothing_else(written: list[Path]) -> None:
    found = Page(written[-1].read_text())
    assert all(source.startswith("data:image/png;base64,") for source in found.sources)
    assert len(found.sources) == 1  # a sample; curves are drawn
    assert "src=" not in re.sub(r'src="data:', "", written[-1].read_text())
    for words in (
        "a <run>", "40 of 40 steps", "best held-out loss 1.5000 after step 30", "accuracy",
        "0.6250", "costs $5 & <b>more</b> 日本", "2,048 (2.00 KiB)", "1,024 (1.00 KiB)",
        'task = "gpt"', "tokens per second", "Python", "4 s", "Gradient norm", "held-out",
        "[512 (512 B)]", "part of activations, not added",
        "Training gpt: a <run>", "most during a step (peak)", "Written 20",
    ):  # fmt: skip
        assert words in found.text, words
    assert "left out" not in found.text


def test_the_sample_in_the_page_is_the_file(written: list[Path]) -> None:
    text = written[-1].read_text()
    (data,) = re.findall(r'class="sample"[^>]*base64,([^"]*)"', text)
    sample = written[-1].parent / "samples" / "step-000030.png"
    assert base64.b64decode(data) == sample.read_bytes()


def test_the_same_run_gives_the_same_files(folder: Path, written: list[Path]) -> None:
    pictures = [path.read_bytes() for path in written[:-1]]
    assert [path.read_bytes() for path in write_report(folder)[:-1]] == pictures


# -- what a killed run leaves --------------------------------------------------------------------


@pytest.mark.parametrize("rest", [b'{"step": 50, "lo', b"{", b'{"step": 50, "loss": 1.0}'])
def test_a_cut_last_line_is_left_out_and_told(folder: Path, rest: bytes) -> None:
    write_lines(folder, LINES, rest)
    run = read_run(folder)
    assert run.last_step == 40
    (problem,) = run.problems
    assert problem.startswith("metrics.jsonl: the last line is cut")
    assert problem in Page(page(run)).text


def test_lines_that_cannot_be_read_are_left_out_and_told(folder: Path) -> None:
    good = [json.dumps(line) for line in LINES]
    bad = ["\x00\x00", '"text"', '{"loss": 1}', '{"step": 5}']
    (folder / "metrics.jsonl").write_text("\n".join([*good[:3], *bad, *good[3:]]) + "\n")
    run = read_run(folder)
    assert len(run.steps) == 4 and len(run.evaluations) == 3 and len(run.samples) == 2
    assert run.problems == ["metrics.jsonl: 4 lines left out as not readable, first line 4"]


def test_a_run_that_has_just_begun_has_a_report(folder: Path) -> None:
    (folder / "metrics.jsonl").unlink()
    (folder / "memory.json").unlink()
    (page_file,) = write_report(folder)
    text = Page(page_file.read_text()).text
    assert "metrics.jsonl is missing: nothing has been measured yet" in text
    assert "0 of 40 steps" in text


def test_metrics_without_a_configuration_are_enough(folder: Path) -> None:
    (folder / "config.toml").unlink()
    run = read_run(folder)
    assert run.problems == ["config.toml is missing"]
    assert run.unit == "units" and run.name == folder.name
    assert "best held-out loss 1.5000" in Page(page(run)).text


def test_a_picture_that_is_gone_is_told(folder: Path) -> None:
    (folder / "samples" / "step-000030.png").unlink()
    text = Page(page(read_run(folder))).text
    assert "samples/step-000030.png is missing" in text


def test_losses_that_are_not_finite_are_drawn_around(folder: Path) -> None:
    write_lines(folder, [step_line(1), step_line(2, loss=float("nan")), step_line(3, loss=None)])
    run = read_run(folder)
    assert "loss" in draw_plots(run)
    assert "training loss" not in Page(page(run)).text


def test_a_folder_without_a_run_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("count", "expected"), [(2, [0, 4]), (3, [0, 2, 4]), (9, [0, 1, 2, 3, 4])])
def test_samples_are_spread_over_the_run(count: int, expected: list[int]) -> None:
    lines = [{"step": number} for number in range(5)]
    assert [line["step"] for line in spread(lines, count)] == expected


def test_texts_are_cut_to_what_a_picture_can_show() -> None:
    assert drawable_lines("a\n\nb\tc 日") == ["a", "", "b?c ?"]
    lines = drawable_lines("word " * 1000)
    assert len(lines) == 20 and max(map(len, lines)) <= 60
