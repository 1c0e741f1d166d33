"""The chat's page in headless Chromium: send, stream, stop, edit, reload, tabs."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from .browser import Page, Slow
from .running import Running, running, small_service


def expected(where: Running, question: str) -> str:
    """What the server answers with the page's settings."""
    from .test_server import ask

    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 30, "seed": 1,
            "temperature": 0.7, "repetition_penalty": 1}  # fmt: skip
    found: str = ask(where, path="/v1/chat/completions", body=body)[1]["choices"][0]["message"][
        "content"
    ]
    return found


def test_a_message_is_answered_with_its_speed_and_kept_over_a_reload(page: Page) -> None:
    page.send("hello")
    page.until(lambda: page.is_idle() and page.answers())
    assert page.questions() == ["hello"]
    assert page.answers() == [expected(page.where, "hello")]
    assert "tokens/s" in page.one(".assistant .tools").text
    before = page.answers()
    page.driver.refresh()
    page.until(lambda: page.answers() == before)
    assert page.questions() == ["hello"]
    assert [one.text for one in page.all("#chats .name")] == ["hello"]


def test_answers_stream_and_stop(page: Page, shown: tuple[Running, Slow]) -> None:
    page.set(max_tokens=140, seed=1)
    shown[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: len(page.answers()[0]) > 3)
    assert not page.is_idle()
    page.one("#stop").click()
    page.until(page.is_idle)
    length = len(page.answers()[0])
    assert 3 < length < 140 and "stopped" in page.one(".assistant .tools").text
    page.until(lambda: shown[0].service.engine.is_idle)
    shown[1].delay = 0.0
    time.sleep(0.2)
    assert len(page.answers()[0]) == length


def test_escape_stops_too(page: Page, shown: tuple[Running, Slow]) -> None:
    page.set(max_tokens=140, seed=1)
    shown[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: page.answers()[0])
    page.one("body").send_keys("\ue00c")
    page.until(page.is_idle)
    shown[1].delay = 0.0
    assert len(page.answers()[0]) < 140


def test_regenerate_and_edit(page: Page) -> None:
    page.send("first")
    page.until(lambda: page.is_idle() and page.answers())
    one = page.answers()[0]
    page.set(max_tokens=30, seed=2)
    page.tool("Regenerate")
    page.until(lambda: page.is_idle() and page.answers() and page.answers()[0] != one)
    assert page.questions() == ["first"] and len(page.answers()) == 1
    page.set(max_tokens=30, seed=1)
    page.send("second")
    page.until(lambda: page.is_idle() and len(page.answers()) == 2)
    page.tool("Edit", 0)
    area = page.one(".message textarea")
    area.clear()
    area.send_keys("changed\n")
    page.until(lambda: page.is_idle() and page.questions() == ["changed"])
    assert page.answers() == [expected(page.where, "changed")]


def test_settings_change_answers_and_are_kept(page: Page) -> None:
    page.one("#open-settings").click()
    field = page.one("#settings [name=max_tokens]")
    field.clear()
    field.send_keys("3")
    page.one("#settings button[value=close]").click()
    page.send("hello")
    page.until(lambda: page.is_idle() and page.answers())
    assert page.one(".assistant .tools span").text.startswith("3 tokens")
    page.driver.refresh()
    page.until(lambda: page.one("#model").text == "small")
    page.one("#open-settings").click()
    assert page.one("#settings [name=max_tokens]").get_property("value") == "3"
    page.one("#settings button[value=close]").click()


def test_chats_side_by_side_and_two_tabs(page: Page, shown: tuple[Running, Slow]) -> None:
    page.set(max_tokens=60, seed=1)
    shown[1].delay = 0.03
    page.send("one")
    page.one("#new").click()
    page.send("two")  # while the first is still being answered
    page.until(lambda: len(page.all("#chats .busy")) == 2)
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open()
    page.one("#new").click()
    page.send("three")
    shown[1].delay = 0.0
    page.until(lambda: page.is_idle() and page.answers())
    page.driver.switch_to.window(first)
    page.until(lambda: len(page.all("#chats li")) == 3 and not page.all("#chats .busy"))
    for name in ("one", "two"):
        next(b for b in page.all("#chats .name") if b.text == name).click()
        page.until(lambda name=name: page.questions() == [name])
        assert len(page.answers()[0]) > 0
    page.driver.switch_to.window(next(h for h in page.driver.window_handles if h != first))
    assert page.questions() == ["three"]
    page.driver.close()
    page.driver.switch_to.window(first)


def test_a_reload_keeps_what_has_come_of_an_answer(page: Page, shown: tuple[Running, Slow]) -> None:
    page.set(max_tokens=140, seed=1)
    shown[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: len(page.answers()[0]) > 5)
    page.driver.refresh()
    page.until(lambda: page.one("#model").text == "small" and page.answers())
    kept = page.answers()[0]
    assert len(kept) > 5 and "stopped" in page.one(".assistant .tools").text
    page.until(lambda: shown[0].service.engine.is_idle)
    shown[1].delay = 0.0
    assert page.is_idle()
    page.send("again")
    page.until(lambda: page.is_idle() and len(page.answers()) == 2)
    assert page.answers()[0] == kept


def test_two_tabs_of_one_chat_lose_nothing(page: Page, shown: tuple[Running, Slow]) -> None:
    page.set(max_tokens=100, seed=1)
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    shown[1].delay = 0.03
    page.send("two")
    page.until(lambda: len(page.answers()) == 2 and page.answers()[1])
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open()
    page.one("#chats .name").click()
    page.until(lambda: page.questions() == ["one", "two"])
    page.send("three")
    shown[1].delay = 0.0
    page.until(lambda: page.is_idle() and page.answers()[-1])
    second = page.driver.current_window_handle
    page.driver.switch_to.window(first)
    page.until(page.is_idle)
    for handle in (first, second):
        page.driver.switch_to.window(handle)
        page.until(lambda: page.questions() == ["one", "two", "three"] and all(page.answers()))
        page.driver.refresh()
        page.until(lambda: page.questions() == ["one", "two", "three"] and all(page.answers()))
    page.driver.close()
    page.driver.switch_to.window(first)


def test_tabs_that_write_at_the_same_moment_lose_no_question(page: Page) -> None:
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    # What each tab adds follows from the turns it has read, and both have read the same.
    page.run(
        "const seen = turnsOf(current()), id = current();"
        "const both = ['two', 'three'].map((text) => newTurn(id, text, seen));"
        "both.forEach((turn) => saveTurn(turn, seen));"
        "both.reverse().forEach((turn) => saveAnswer("
        "{...turn, answer: {...turn.answer, text: 'to ' + turn.question}})); draw()"
    )
    for _ in range(2):
        assert sorted(page.questions()) == ["one", "three", "two"]
        assert page.questions()[0] == "one"
        for question, answer in list(zip(page.questions(), page.answers(), strict=True))[1:]:
            assert answer == f"to {question}"
        page.driver.refresh()
        page.until(lambda: len(page.answers()) == 3)


def test_an_answer_of_a_turn_that_was_deleted_or_asked_anew_is_not_kept(page: Page) -> None:
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    late = page.run("return turnsOf(current())[0]")
    page.tool("Regenerate")
    page.until(page.is_idle)
    anew = page.run("return turnsOf(current())[0]")
    assert anew["answer"]["key"] != late["answer"]["key"]
    page.run("saveAnswer(arguments[0])", {**late, "answer": {**late["answer"], "text": "late"}})
    assert page.run("return turnsOf(current())") == [anew]
    page.run("removeChat(current()); saveAnswer(arguments[0])", anew)
    assert page.run("return Object.keys(localStorage).filter((k) => /^(turn|chat)/.test(k))") == []


def test_chats_of_the_version_before_are_kept(page: Page) -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "first", "key": "k", "speed": "3 tokens"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "", "error": "broken"},
    ]
    page.run(
        "localStorage.clear();"
        "localStorage.setItem('chats', JSON.stringify([{id: 'b', name: 'x'}, {id: 'a'}]));"
        "localStorage.setItem('chat:a', JSON.stringify({id: 'a', messages: arguments[0]}));"
        "localStorage.setItem('chat:b', JSON.stringify({id: 'b', messages: []}));"
        "localStorage.setItem('turn:gone:k', '{\"chat\": \"gone\"}');"
        "sessionStorage.setItem('current', 'a')", messages,
    )  # fmt: skip
    for _ in range(2):
        page.driver.refresh()
        page.until(lambda: page.questions() == ["one", "two"])
        assert page.answers() == ["first", ""]
        assert page.one(".error").text == "broken"
        assert [one.text for one in page.all("#chats .name")] == ["one"]
    assert page.run("return Object.keys(localStorage).filter((k) => /gone|^chats/.test(k))") == []


def test_a_browser_that_is_full_says_so_and_keeps_the_message(page: Page) -> None:
    page.run(
        "let size = 1 << 22; while (size) { try { localStorage.setItem('fill' + Math.random(), "
        "'x'.repeat(size)); } catch { size >>= 1; } }"
    )
    page.send("hello")
    page.until(lambda: "delete a chat" in page.one("#notice").text)
    assert page.one("#input").get_property("value") == "hello" and page.is_idle()
    page.run("Object.keys(localStorage).filter((k) => k.startsWith('fill')).forEach((k) => "
             "localStorage.removeItem(k))")  # fmt: skip
    page.one("#send").click()
    page.until(lambda: page.is_idle() and page.answers() and page.answers()[0])
    assert page.questions() == ["hello"] and page.one("#input").get_property("value") == ""


def test_an_answer_that_breaks_off_is_told(page: Page) -> None:
    page.run(
        "const text = 'data: ' + JSON.stringify({choices: [{delta: {content: 'half'}}]}) + "
        "'\\n\\n'; window.fetch = async () => new Response(text)"
    )
    page.send("hello")
    page.until(lambda: page.all(".error"))
    assert page.answers() == ["half"] and "broke off" in page.one(".error").text


def test_copy_and_a_server_that_refuses(page: Page) -> None:
    page.send("hello")
    page.until(lambda: page.is_idle() and page.answers())
    page.tool("Copy")
    page.until(lambda: any(b.text == "Copied" for b in page.all(".tools button")))
    page.set(temperature=-5)
    page.send("again")
    page.until(lambda: page.all(".error"))
    assert "temperature" in page.one(".error").text


def test_nothing_is_refused_by_the_policy(page: Page) -> None:
    page.send("hello")
    page.until(lambda: page.is_idle() and page.answers())
    wrong = [e for e in page.driver.get_log("browser") if "Content Security" in e["message"]]
    assert not wrong


def test_a_token_comes_with_the_address_or_from_the_settings(chromium: Any) -> None:
    token = "a+long&secret=token/\u20ac \u00df%20"
    with running(small_service(context=48, sequences=1), page=True, token=token) as where:
        page = Page(chromium, where)
        chromium.get(where.url)
        page.run("sessionStorage.clear()")
        chromium.refresh()
        page.until(lambda: "needs its token" in page.one("#notice").text)
        page.one("#open-settings").click()
        page.one("#token").send_keys(token)
        page.one("#settings button[value=close]").click()
        page.until(lambda: page.one("#model").text == "small" and not page.one("#notice").text)
        page.run("sessionStorage.clear()")
        chromium.get(f"{where.url}/#token={quote(token, safe='')}")
        chromium.refresh()
        page.until(lambda: page.one("#model").text == "small")
        assert chromium.current_url == f"{where.url}/"
        page.set(max_tokens=3)
        page.send("a")
        page.until(lambda: page.is_idle() and page.answers() and page.answers()[0])
        assert not page.all(".error")
