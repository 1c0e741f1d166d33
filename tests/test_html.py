"""What the pages of reports share."""

from __future__ import annotations

from evergrad import html


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
    page = html.page("t", ["<p>1</p>", "<p>2</p>"], ".own { color: red; }")
    assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
    assert "<p>1</p><p>2</p></body>" in page and ".own" in page
    assert "<script" not in page and "http" not in page


def test_sections_without_content_are_left_out() -> None:
    assert html.section("title", "") == ""


def test_a_drawing_is_filled_by_its_largest_value() -> None:
    frame = html.Drawing.up_to(50, 124)
    assert (frame.y(0), frame.y(50)) == (100, 0)
    assert (frame.x(0), frame.x(1)) == (frame.left, frame.width)
    lines = frame.grid(50, str, ("a", "b"))
    assert [f">{n}<" in line for n, line in zip((0, 12, 25, 37, 50), lines[:5], strict=True)] == [
        True
    ] * 5


def test_tables_have_numbers_first() -> None:
    found = html.table(("n", "what"), [("1", "x")], 1)
    assert '<td class="n">1</td><td><code>x</code></td>' in found
