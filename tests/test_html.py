"""What the pages of reports share."""

from __future__ import annotations

import json
import math
import re
from html import unescape

import pytest

import evergrad as eg
from evergrad import html, memory
from evergrad.html.charts import Chart, Series, readable, ticks
from evergrad.memory.reports import size


def test_everything_that_is_text_is_escaped() -> None:
    evil = "<b>&\"'"
    pieces = [
        html.page(evil, []), html.section(evil, "x"), html.paragraph(evil), html.details(evil, ""),
        html.preformatted(evil), html.table((evil,), [(evil,)], 0),
        html.table((evil,), [(evil,)], 1),
        html.image(b"", evil), html.rectangle("k", 0, 0, 1, 1, evil),
        html.Drawing.up_to(1, 100).svg(evil, []),
        "".join(html.Drawing.up_to(4, 100).grid(4, lambda value: evil, (evil, evil))),
    ]  # fmt: skip
    for piece in pieces:
        assert "<b>" not in piece and "&lt;b&gt;&amp;&quot;" in piece


def test_a_page_stands_alone() -> None:
    page = html.page("t", ["<p>1</p>", "<p>2</p>"])
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert "<h1>t</h1><p>1</p><p>2</p>" in page
    assert "src=" not in page and "href=" not in page and "@import" not in page
    assert re.findall(r"https?://[^\"]*", page) == ["http://www.w3.org/2000/svg"]  # a name, no link


def test_sections_without_content_are_left_out() -> None:
    assert html.section("title", "") == ""


def test_a_drawing_has_room_above_its_largest_value() -> None:
    frame = html.Drawing.up_to(50, 124)
    assert (frame.y(0), frame.y(50)) == (100, 16)
    assert (frame.x(0), frame.x(1)) == (frame.left, frame.width)
    lines = frame.grid(50, str, ("a", "b"))
    assert len(lines) == 7 + 2  # and the labels of both ends
    assert all(f">{n}<" in line for n, line in zip(range(0, 51, 8), lines, strict=False))


def test_lines_of_bytes_are_at_round_sizes() -> None:
    lines = html.Drawing.up_to(2_339_904, 124).grid(2_339_904, size, ("a", "b"))
    labels = [line.partition("</text>")[0].rpartition(">")[2] for line in lines]
    assert labels[:5] == ["0 B", "512.00 KiB", "1.00 MiB", "1.50 MiB", "2.00 MiB"]


def test_tables_have_numbers_first() -> None:
    found = html.table(("n", "what"), [("1", "x")], 1)
    assert '<td class="n">1</td><td><code>x</code></td>' in found


# -- charts ---------------------------------------------------------------------------------------


def heights(figure: str) -> list[float]:
    """The places of a chart's first curve, from the top."""
    path = re.search(r'<path d="([^"]*)"', figure)
    assert path is not None
    return [float(y) for _, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path[1])]


@pytest.mark.parametrize("unit", ["", "bytes", "tokens/s"])
@pytest.mark.parametrize("values", [[5.0, 5.0], [0.0, 0.0], [1.0, 3e9], [-2.0, 4.0], [1e-9, 2e-9]])
def test_no_curve_coincides_with_the_frame(values: list[float], unit: str) -> None:
    figure = Chart("t", [Series("s", list(enumerate(values)))], unit=unit).html()
    assert min(heights(figure)) > 12 and max(heights(figure)) <= 224


def test_charts_leave_out_what_cannot_be_drawn() -> None:
    assert Chart("t", [Series("s", [])]).html() == ""
    points = [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)]
    figure = Chart("t", [Series("<s>", points), Series("empty", [])]).html()
    data = json.loads(unescape(re.search(r'data-chart="([^"]*)"', figure)[1]))  # type: ignore[index]
    assert [s["points"] for s in data["series"]] == [[[0, 1], [3, 2]]]
    assert "&lt;s&gt;" in figure and "empty" not in figure and "<s>" not in figure


def test_one_point_is_a_chart() -> None:
    assert "<circle" in Chart("t", [Series("s", [(1, 2.0)], dots=True)]).html()


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"), (1234, "", "1,234"), (0.5, "", "0.5"), (3e-4, "", "3.00e-04"),
        (2.5e9, "", "2.50e+09"), (512, "bytes", "512 B"), (1536, "bytes", "1.50 KiB"),
        (18139.3, "", "18,139"), (999.96, "", "1,000"), (123.456, "", "123.5"),
        (3 << 40, "bytes", "3.00 TiB"), (12, "tokens/s", "12 tokens/s"),
    ],
)  # fmt: skip
def test_numbers_read_well(value: float, unit: str, text: str) -> None:
    assert readable(value, unit) == text


def test_ticks_are_round() -> None:
    assert ticks(0, 10, 4) == [0, 2.5, 5, 7.5, 10]
    assert ticks(0, 40 << 20, 4, "bytes") == [n * 10 * 2**20 for n in range(5)]
    assert len(ticks(-3, 17, 6)) in range(4, 9)


# -- notebooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (3,), (4, 5), (2, 3, 4), (100, 200), (0, 3), (1, 64)])
@pytest.mark.parametrize("dtype", [eg.float32, eg.bfloat16, eg.int64, eg.bool])
def test_tensors_have_a_cell(shape: tuple[int, ...], dtype: eg.dtype) -> None:
    x = eg.ones(shape).to(dtype)
    before = memory.stats()["live"]
    cell = x._repr_html_()
    assert memory.stats()["live"] == before
    assert cell.startswith('<div class="evergrad">') and "<script" not in cell
    assert (" × ".join(map(str, shape)) or "a number") in cell
    assert len(cell) < 400_000


def test_cells_show_what_is_not_finite() -> None:
    cell = eg.tensor([[1.0, math.nan], [math.inf, -2.0]])._repr_html_()
    assert "2 not finite" in cell and "from -2 to 1" in cell and "nan" in cell


def test_values_without_an_array_are_shown_as_text() -> None:
    assert eg.zeros(3, dtype=eg.complex64)._repr_html_() is None
    assert eg.eye(3).to_sparse()._repr_html_() is None
    assert eg.zeros(3, device="meta")._repr_html_() is None
    seen = []
    eg.vmap(lambda x: (seen.append(x._repr_html_()), x)[1])(eg.zeros(2, 3))
    assert seen == [None]


def test_a_cell_records_no_gradient() -> None:
    x = eg.ones(3, requires_grad=True)
    assert "requires_grad" in (x * 2)._repr_html_()
    assert x.grad is None


def test_plans_explanations_and_ledgers_have_cells() -> None:
    @eg.compile
    def step(x: eg.Tensor) -> eg.Tensor:
        return (x @ x).exp().sum(0) @ x

    x = eg.ones(8, 8)
    with memory.track() as tracker:
        kept = eg.ones(1000) * 2
    cells = [step.plan(x), step.explain(x), tracker, memory.ledger.LEDGER]
    for cell in cells:
        text = cell._repr_html_()
        assert text.startswith('<div class="evergrad">') and "<script" not in text
    assert kept.numel() == 1000


def test_plans_trackers_ledgers_and_explanations_read_well_in_a_console() -> None:
    step = eg.compile(lambda x: (x * 2).sum())
    x = eg.ones(8)
    with eg.memory.track() as tracker:
        step(x)
    shown = [repr(step.plan(x)), repr(step.explain(x)), repr(tracker), repr(memory.ledger.LEDGER)]
    for text, start in zip(
        shown, ["<memory plan: ", "<explanation of ", "<memory tracker: ", "<memory ledger: "],
        strict=True,
    ):  # fmt: skip
        assert text.startswith(start) and " at 0x" not in text and "\n" not in text
        assert len(text) < 160
