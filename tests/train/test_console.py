"""What a run says: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import pytest

from evergrad.train.console import Console, Progress

NOW = Progress(990, 1500, 2.5, 123456.0, "tokens", 1.25e-3, 1 << 20, 999 << 20)


def test_what_stands_beside_the_bar_leaves_room_for_it_in_80_columns() -> None:
    assert NOW.short == "loss 2.500  123,456 tokens/s  lr 1e-03  999.00 MiB"
    assert len(NOW.short) + len("━━━━━━━━━━ 1500/1500 ") + len(" 0:00:00") <= 80


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """At most one in a few seconds, but always the last."""
    console = Console()
    console.start(0, 1500)
    for step in (10, 20, 1500):
        console.progress(NOW._replace(step=step))
    console.stop()
    told = capsys.readouterr().out
    assert "step 10/1500  loss 2.500" in told and "step 1500/1500" in told
    assert "step 20/1500" not in told
    assert "\x1b" not in told


def test_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    console = Console()
    console.start(0, 1500)
    console.progress(NOW)
    console.say("[not] markup")
    console.stop()
    told = capsys.readouterr().out
    assert "990/1500" in told and "123,456 tokens/s" in told
    assert "[not] markup" in told


def test_samples_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Console().sample("one [bold]\ntwo")
    assert capsys.readouterr().out == "  | one [bold]\n  | two\n"
