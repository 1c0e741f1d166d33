"""``evergrad chat`` in the terminal: answers, commands, Ctrl-C; and from training to chat."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from evergrad.datasets.conversations import read_conversations
from evergrad.train import loop

from .conftest import Run

pytest.importorskip("click", reason="click is not installed: pip install 'evergrad[app]'")

from evergrad.cli.terminal import Terminal
from evergrad.cli.train import run as train
from evergrad.models.gpt import GPT, GPTConfig
from evergrad.serve.engine import EngineConfig
from evergrad.serve.service import Service
from evergrad.tokenizers import CharTokenizer, ChatTokenizer


@pytest.fixture(scope="module")
def service() -> Service:
    import evergrad as eg

    eg.manual_seed(0)
    tokenizer = ChatTokenizer(CharTokenizer("abcdefghij klmnop?!"))
    config = GPTConfig(vocabulary=len(tokenizer), context=64, layers=1, heads=2, width=16)
    return Service(GPT(config).eval(), tokenizer, "small", EngineConfig(sequences=1))


def talk(service: Service, *lines: str, **options: Any) -> Terminal:
    waiting = iter(lines)

    def read(prompt: str) -> str:
        line = next(waiting, None)
        if line is None:
            raise EOFError
        if line == "^C":
            raise KeyboardInterrupt
        return line

    found = Terminal(service, read=read, **{"seed": 0, "length": 20, **options})
    found.run()
    return found


def test_a_conversation_goes_on(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    found = talk(service, "hi", "", "more")
    assert [m["role"] for m in found.messages] == ["user", "assistant"] * 2
    shown = capsys.readouterr().out
    for message in found.messages[1::2]:
        assert message["content"] in shown
    assert "tokens/s" in shown
    again = talk(service, "hi", "more")
    assert again.messages == found.messages
    assert talk(service, "hi", seed=1).messages != found.messages[:2]


def test_commands(service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "talk.jsonl"
    found = talk(
        service, "/temp 0", "/topk 5", "/topp 0.9", "/len 7", "/seed 3", "hi", f"/save {path}",
        "/quit", "never read",
    )  # fmt: skip
    assert (found.temperature, found.top_k, found.top_p, found.length) == (0.0, 5, 0.9, 7)
    assert found.seed == 3 and len(found.messages) == 2
    assert read_conversations(path) == [found.messages]
    assert json.loads(path.read_text())["messages"][0] == {"role": "user", "content": "hi"}
    reset = talk(service, "hi", "/reset", "/topk 0", "/topp 1", "/seed none")
    assert reset.messages == [] and reset.top_k is None and reset.top_p is None
    assert reset.seed is None
    capsys.readouterr()
    for wrong in ("/temp hot", "/temp -1", "/topk -3", "/len 0", "/topp 2", "/save", "/save /no/x"):
        kept = talk(service, wrong)
        assert "error: " in capsys.readouterr().out
        assert (kept.temperature, kept.top_k, kept.length) == (0.7, None, 20)
    for wrong, told in (("/temp hot", "a number, not 'hot'"), ("/seed 1.5", "a whole number, not")):
        talk(service, wrong)
        assert told in capsys.readouterr().out
    talk(service, "/nothing", "/help")
    assert "there is no command /nothing" in capsys.readouterr().out


def test_an_interrupt_stops_the_answer_and_not_the_program(
    service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, count = service.engine.step, 0

    def interrupted() -> None:
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(service.engine, "step", interrupted)
    found = talk(service, "^C", "hi", "^C", "again")
    assert len(found.messages) == 4
    assert 0 < len(found.messages[1]["content"]) < 20
    assert "(stopped)" in capsys.readouterr().out
    assert service.engine.is_idle and service.engine.table.used == 0


def test_a_signal_inside_a_step_takes_effect_after_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever Ctrl-C is pressed, the engine has whole steps, and goes on with the next answer."""
    engine, step, where = service.engine, service.engine.step, [0]

    def pressed(name: str) -> None:
        whole = getattr(engine, name)

        def interrupted() -> None:
            where[0] += 1
            if where[0] % 5 == 0:
                signal.raise_signal(signal.SIGINT)
            whole()
            if where[0] % 5 == 1:
                signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(engine, name, interrupted)

    for name in ("_admit", "_prefill", "_decode", "_sweep"):
        pressed(name)
    before = signal.getsignal(signal.SIGINT)
    found = talk(service, *["hi"] * 6)
    assert len(found.messages) == 12 and where[0] > 20
    assert engine.is_idle and engine.table.used == 0 and engine.table.reserved == 0
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.undo()
    assert engine.step == step
    assert talk(service, "hi").messages == talk(service, "hi").messages


def test_an_interrupted_command_gives_up_the_line(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is pressed while a command is done, or before an answer begins."""

    def interrupted(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Terminal, "_save", interrupted)
    monkeypatch.setattr(service, "chat_prompt", interrupted)
    found = talk(service, "/save x", "hi", "/temp 1", "/quit", "never read")
    assert found.is_over and found.temperature == 1.0


def test_answers_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A model may have been trained to write escape sequences; the conversation keeps them."""
    import evergrad as eg

    eg.manual_seed(0)
    tokenizer = ChatTokenizer(CharTokenizer("\x1b\x07\x9b\r\x00\x7fa\n\t"))
    config = GPTConfig(vocabulary=len(tokenizer), context=64, layers=1, heads=2, width=16)
    hostile = Service(GPT(config).eval(), tokenizer, "hostile", EngineConfig(sequences=1))
    found = talk(hostile, "a", length=50, temperature=5.0)
    shown = capsys.readouterr().out
    control = set("\x1b\x07\x9b\r\x00\x7f")
    assert control & set(found.messages[1]["content"])
    assert "\ufffd" in shown and not control & set(shown)


def test_a_long_conversation_is_shortened(service: Service) -> None:
    found = talk(service, *["abcdefghij"] * 8, length=5)
    assert len(found.messages) == 16
    refused = talk(service, "a" * 100)
    assert refused.messages == []


def test_from_training_to_chat(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``evergrad chat`` trains what is missing, and uses it the next time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loop, "write_report", lambda path, *given: [Path(path) / "report.html"])
    tiny = ("--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--steps", "2")
    assert run("train", "--tiny", *tiny, "--output", "runs/gpt").exit_code == 0
    few = ["--steps", "2", "--batch", "1", "--evaluate-batches", "1"]

    def train_little(size: str | None, resume: bool, words: list[str]) -> Any:
        return train(size, resume, [*words, *few])

    monkeypatch.setattr("evergrad.cli.chat.train", train_little)
    first = run("chat", "--tiny", "--length", "5", "--sequences", "1")
    assert first.exit_code == 0, first.output
    assert "/help shows" in first.output and (tmp_path / "runs/chat/checkpoints/best.ckpt").exists()
    second = run("chat", "--tiny", "--length", "5", "--sequences", "1", "--weights", "int8")
    assert second.exit_code == 0 and "held-out" not in second.output
    missing = run("chat", "nothing")
    assert missing.exit_code == 2 and "there is no checkpoint" in missing.output
    wrong = run("chat", "runs/chat", "--adapter", "x")
    assert wrong.exit_code == 2 and "NAME=FOLDER" in wrong.output
