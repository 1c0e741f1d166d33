"""What is said about memory: figures, tracking, reports, and the proof that it is flat."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from typing import Any

import pytest

import evergrad as eg
from evergrad import memory
from evergrad.errors import SteadyStateError
from evergrad.memory.ledger import CATEGORIES, LEDGER

pytestmark = pytest.mark.usefixtures("collector_off")


def leaf(*shape: int) -> Any:
    return eg.randn(*shape).requires_grad_()


# -- stats and tracking ---------------------------------------------------------------------------


def test_stats() -> None:
    before = memory.stats()
    x = eg.ones(10, 10)
    after = memory.stats()
    assert set(after) == {"live", "peak", "pooled", "count", "by_category"}
    assert set(after["by_category"]) == set(CATEGORIES)
    assert after["live"] - before["live"] == 400
    assert after["count"] - before["count"] == 1
    assert sum(after["by_category"].values()) == after["live"]
    memory.reset_peak()
    (x + x).sum()
    assert memory.stats()["peak"] - after["live"] == 404
    memory.reset_peak()
    assert memory.stats()["peak"] == after["live"]


def work() -> Any:
    x = eg.ones(100, 50)
    y = x * 2
    return y.sum()


def test_a_tracker_tells_the_whole_story() -> None:
    held = eg.ones(7)
    memory.reset_peak()
    with memory.track() as tracker:
        total = work()
        del held
    assert tracker.peak == memory.stats()["peak"]
    assert sum(entry.nbytes for entry in tracker.alive_at_peak()) == tracker.peak
    kinds = [(event.kind, event.nbytes) for event in tracker.timeline]
    assert kinds == [
        ("alloc", 20_000), ("alloc", 20_000), ("alloc", 4), ("free", -20_000), ("free", -20_000),
        ("free", -28),
    ]  # fmt: skip
    assert [event.live - tracker.live_at_start for event in tracker.timeline] == [
        20_000, 40_000, 40_004, 20_004, 4, -24,
    ]  # fmt: skip
    seconds = [event.seconds for event in tracker.timeline]
    assert seconds == sorted(seconds) and seconds[0] >= 0
    first, second = tracker.top(2) if tracker.live_at_start < 20_000 else tracker.top(3)[1:]
    assert {first.op, second.op} == {"full", "mul"}
    assert first.type == "float32[100,50]" and first.nbytes == 20_000
    assert first.died is not None and first.born <= first.died
    assert __file__ in first.site and "in work" in first.site
    assert tracker.by_op()["mul"] == (20_000, 20_000, 1)
    assert any("y = x * 2" in site for site in tracker.by_site())
    assert next(iter(tracker.alive.values())).op == "sum"
    del total
    assert len(tracker.timeline) == 6  # it has ended


def test_a_tracker_sees_backward_with_its_ops_and_categories() -> None:
    w = leaf(64, 64)
    x = eg.randn(128, 64)
    memory.reset_peak()
    with memory.track() as tracker:
        loss = (x @ w).tanh().sum()
        loss.backward()
    assert tracker.peak == memory.stats()["peak"]
    assert sum(entry.nbytes for entry in tracker.alive_at_peak()) == tracker.peak
    assert {"hold", "scratch", "alloc", "free"} == {event.kind for event in tracker.timeline}
    (gradient,) = [a for a in tracker.alive.values() if a.category == "gradient"]
    assert gradient.op.startswith("Matmul") or gradient.op.startswith("Mm")
    assert "loss.backward()" in gradient.site
    freed = [e.allocation for e in tracker.timeline if e.kind == "free" and e.allocation]
    assert {a.op: a.category for a in freed}["tanh"] == "saved"
    assert any(e.kind == "scratch" and "Tanh" in e.origin.op for e in tracker.timeline)


def test_ops_of_a_recorded_backward_name_both() -> None:
    w = leaf(5)
    y = w.sin().sum()
    with memory.track() as tracker:
        y.backward(create_graph=True)
    assert any(re.fullmatch(r"SinBackward0 > (mul|cos)", op) for op in tracker.by_op())


def test_tracking_changes_no_lifetime() -> None:
    """Reading the op off the frames must not keep what they refer to."""

    def step() -> list[int]:
        w = leaf(40, 40)
        lives: list[int] = []
        y = w * 1.0
        for _ in range(4):
            y = y.exp().log1p()
            y.register_hook(lambda grad: lives.append(LEDGER.live - before))
        y.sum().backward(create_graph=True)
        return lives

    before = LEDGER.live
    plain = step()
    with memory.track():
        tracked = step()
    assert plain == tracked


def test_trackers_may_be_nested() -> None:
    with memory.track() as outer:
        a = eg.ones(10)
        with memory.track() as inner:
            b = eg.ones(20)
        c = eg.ones(30)
    assert LEDGER.observer is None
    assert [event.nbytes for event in outer.timeline] == [40, 80, 120]
    assert [event.nbytes for event in inner.timeline] == [80]
    assert inner.live_at_start == outer.live_at_start + 40
    del a, b, c


def test_an_empty_tracker_has_answers() -> None:
    with memory.track() as tracker:
        pass
    assert tracker.peak == LEDGER.live
    assert all(name.startswith("alive before") for name in tracker.by_op())
    assert sum(entry.nbytes for entry in tracker.alive_at_peak()) in (0, tracker.peak)
    for format in ("text", "json", "html"):
        assert tracker.report(format)


def test_a_tracker_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), memory.track():
        raise ZeroDivisionError
    assert LEDGER.observer is None


# -- reports --------------------------------------------------------------------------------------


def test_text_report() -> None:
    x = eg.ones(1000, 100)
    text = memory.report()
    assert "alive now" in text and "float32[1000,100]" in text and "390.62 KiB" in text
    with memory.track():
        y = x * 2
        text = memory.report()
    assert "alive at the peak" in text and "y = x * 2" in text and "mul" in text
    del y


def test_json_report() -> None:
    with memory.track() as tracker:
        work()
    data = json.loads(tracker.report("json"))
    assert data["tracked_peak"] == tracker.peak
    assert data["by_op"]["mul"]["allocated"] == 20_000
    assert sum(entry["nbytes"] for entry in data["alive_at_peak"]) == tracker.peak
    assert len(data["timeline"]) == len(tracker.timeline)
    assert json.loads(memory.report("json"))["live"] == LEDGER.live


class Tags(HTMLParser):
    """Collects what a page consists of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_html_report_is_one_page_that_loads_nothing() -> None:
    w = leaf(64, 64)
    with memory.track() as tracker:
        (w @ w).tanh().sum().backward()
    page = tracker.report("html")
    tags = Tags()
    tags.feed(page)
    assert not tags.addresses and tags.tags.count("script") == 1 and "link" not in tags.tags
    assert set(re.findall(r"https?://[^\"]*", page)) == {"http://www.w3.org/2000/svg"}  # a name
    assert "@import" not in page and "url(" not in page.partition("<body>")[0]
    drawing = ElementTree.fromstring(re.findall(r"<svg.*?</svg>", page, re.S)[0])
    titles = [title.text or "" for title in drawing.iter("title")]
    assert titles and any("live" in title and "tanh" in title for title in titles)
    assert len(list(drawing.iter("polygon"))) >= 2
    assert "Alive at the peak" in page and "gradient" in page
    for polygon in drawing.iter("polygon"):
        points = [tuple(map(float, p.split(","))) for p in polygon.attrib["points"].split()]
        assert all(0 <= x <= 1000 and 0 <= y <= 320 for x, y in points)


def test_html_report_of_many_events_stays_small() -> None:
    with memory.track() as tracker:
        for _ in range(3000):
            eg.ones(3) + 1
    assert len(tracker.report("html")) < 300_000


def test_html_report_escapes_and_works_without_a_tracker() -> None:
    with memory.track() as tracker:
        kept = eg.ones(3) < 2  # <script>
    page = tracker.report("html")
    assert page.count("<script>") == 1 and "&lt;script&gt;" in page
    assert "Alive now" in memory.report("html")
    del kept


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'yaml'"):
        memory.report("yaml")


# -- steady ---------------------------------------------------------------------------------------


def training_step(w: Any, x: Any) -> Any:
    loss = (x @ w).tanh().sum()
    w.grad = None
    loss.backward()
    return loss


def test_steady_lets_flat_steps_pass() -> None:
    w, x = leaf(6, 5), eg.randn(4, 6)
    with memory.steady() as steady:
        for _ in range(5):
            training_step(w, x)
            steady.step()
    assert LEDGER.observer is None


def test_steady_names_what_stayed() -> None:
    w, x = leaf(6, 5), eg.randn(4, 6)
    kept = []
    with pytest.raises(SteadyStateError) as raised, memory.steady(warmup=2) as steady:
        for i in range(6):
            loss = training_step(w, x)
            if i >= 3:
                kept.append(x * 2)  # the leak
            steady.step()
    text = str(raised.value)
    assert "step 4" in text and "+96 bytes" in text
    assert "stayed: 96 bytes in 1 x float32[4,6], allocated by mul" in text
    assert "kept.append(x * 2)  # the leak" in text
    assert len(text.splitlines()) == 3
    assert LEDGER.observer is None
    del loss


def test_steady_names_a_loss_that_is_kept_for_its_number() -> None:
    w, x = leaf(6, 5), eg.randn(4, 6)
    losses = []
    with pytest.raises(SteadyStateError, match=r"allocated by sum .*loss = \(x @ w\)") as raised:
        for _ in memory.steady(range(4)):
            losses.append(training_step(w, x))
    assert "loss.item()" in str(raised.value)


def test_steady_notices_what_went() -> None:
    held = [eg.ones(4), eg.ones(4)]
    with pytest.raises(SteadyStateError, match=r"-16 bytes\).\n  what went"):
        for i in memory.steady(range(4)):
            if i == 2:
                held.pop()


def test_steady_iterates_and_counts_warm_up() -> None:
    made = []
    seen = []
    for i in memory.steady(range(6), warmup=3):
        seen.append(i)
        if i < 3:
            made.append(eg.ones(5))
    assert seen == list(range(6))
    with pytest.raises(ValueError, match="warmup=0"):
        memory.steady(warmup=0)
    with pytest.raises(TypeError, match="nothing to iterate over"):
        next(iter(memory.steady()))
