"""The chat's page in headless Chromium: send, stream, stop, edit, settings, tabs, hostile text."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .running import Running, running, small_service

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed: pip install 'evergrad[test]'"
)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="Chromium is not installed: apt-get install chromium chromium-driver",
)
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


class Slow:
    """Makes an engine slow enough to be watched, and its answers long enough."""

    def __init__(self, service: Any) -> None:
        self.delay = 0.0
        step = service.engine.step

        def slow() -> None:
            time.sleep(self.delay)
            step()

        service.engine.step = slow


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Running, Slow]]:
    service = small_service()
    slow = Slow(service)
    with running(service, page=True) as where:
        yield where, slow


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    folder = tmp_path_factory.mktemp("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--window-size=1100,760", f"--user-data-dir={folder}"):  # fmt: skip
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


class Page:
    """What a person does with the page, and sees."""

    def __init__(self, driver: Any, where: Running) -> None:
        self.driver = driver
        self.where = where

    def open(self) -> None:
        self.driver.get(f"{self.where.url}/")
        self.until(lambda: self.one("#model").text == "small")

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def until(self, holds: Callable[[], Any], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while True:
            try:
                if holds():
                    return
            except Exception:  # an element that was just replaced
                pass
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.02)

    def set(self, **settings: Any) -> None:
        self.run("localStorage.setItem('settings', JSON.stringify(arguments[0]))", settings)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def send(self, text: str) -> None:
        self.one("#input").send_keys(text + "\n")

    def answers(self) -> list[str]:
        return [one.get_property("textContent") for one in self.all(".assistant .body")]

    def questions(self) -> list[str]:
        return [one.get_property("textContent") for one in self.all(".user .body")]

    def is_idle(self) -> bool:
        return not self.one("#stop").is_displayed()

    def tool(self, name: str, number: int = -1) -> None:
        found = [b for b in self.all(".tools button") if b.text == name]
        found[number].click()


@pytest.fixture
def page(chromium: Any, server: tuple[Running, Slow]) -> Page:
    found = Page(chromium, server[0])
    server[1].delay = 0.0
    chromium.get(f"{server[0].url}/")
    found.run("localStorage.clear(); sessionStorage.clear()")
    found.open()
    found.set(max_tokens=30, seed=1)
    return found


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
    assert "tokens/s" in page.one("#speed").text
    before = page.answers()
    page.driver.refresh()
    page.until(lambda: page.answers() == before)
    assert page.questions() == ["hello"]
    assert [one.text for one in page.all("#chats .name")] == ["hello"]


def test_answers_stream_and_stop(page: Page, server: tuple[Running, Slow]) -> None:
    page.set(max_tokens=140, seed=1)
    server[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: len(page.answers()[0]) > 3)
    assert not page.is_idle()
    page.one("#stop").click()
    page.until(page.is_idle)
    length = len(page.answers()[0])
    assert 3 < length < 140 and "stopped" in page.one(".assistant .tools").text
    page.until(lambda: server[0].service.engine.is_idle)
    server[1].delay = 0.0
    time.sleep(0.2)
    assert len(page.answers()[0]) == length


def test_escape_stops_too(page: Page, server: tuple[Running, Slow]) -> None:
    page.set(max_tokens=140, seed=1)
    server[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: page.answers()[0])
    page.one("body").send_keys("\ue00c")
    page.until(page.is_idle)
    server[1].delay = 0.0
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


def test_hostile_text_is_shown_as_text(page: Page) -> None:
    page.send(HOSTILE)
    page.until(lambda: page.is_idle() and page.questions())
    assert page.questions() == [HOSTILE]
    answer = {
        "id": "x",
        "messages": [{"role": "assistant", "content": f"{HOSTILE}\n```\n<b>\n```"}],
    }
    page.run(
        "localStorage.setItem('chat:x', JSON.stringify(arguments[0]));"
        "localStorage.setItem('chats', JSON.stringify([{id: 'x', name: arguments[1]}]));"
        "sessionStorage.setItem('current', 'x')", answer, HOSTILE,
    )  # fmt: skip
    page.driver.refresh()
    page.until(lambda: page.answers())
    assert HOSTILE in page.answers()[0] and page.one("#chats .name").text == HOSTILE
    assert not page.all("#log img, #log script, #log b, #chats img")
    assert page.all("#log pre code") and page.driver.title == "evergrad chat"


def test_chats_side_by_side_and_two_tabs(page: Page, server: tuple[Running, Slow]) -> None:
    page.set(max_tokens=60, seed=1)
    server[1].delay = 0.03
    page.send("one")
    page.one("#new").click()
    page.send("two")  # while the first is still being answered
    page.until(lambda: len(page.all("#chats .busy")) == 2)
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open()
    page.one("#new").click()
    page.send("three")
    server[1].delay = 0.0
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


def test_a_reload_keeps_what_has_come_of_an_answer(
    page: Page, server: tuple[Running, Slow]
) -> None:
    page.set(max_tokens=140, seed=1)
    server[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: len(page.answers()[0]) > 5)
    page.driver.refresh()
    page.until(lambda: page.one("#model").text == "small" and page.answers())
    kept = page.answers()[0]
    assert len(kept) > 5 and "stopped" in page.one(".assistant .tools").text
    page.until(lambda: server[0].service.engine.is_idle)
    server[1].delay = 0.0
    assert page.is_idle()
    page.send("again")
    page.until(lambda: page.is_idle() and len(page.answers()) == 2)
    assert page.answers()[0] == kept


def test_two_tabs_of_one_chat_lose_nothing(page: Page, server: tuple[Running, Slow]) -> None:
    page.set(max_tokens=100, seed=1)
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    server[1].delay = 0.03
    page.send("two")
    page.until(lambda: len(page.answers()) == 2 and page.answers()[1])
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open()
    page.one("#chats .name").click()
    page.until(lambda: page.questions() == ["one", "two"])
    page.send("three")
    server[1].delay = 0.0
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


def test_escape_closes_the_settings_and_stops_nothing(
    page: Page, server: tuple[Running, Slow]
) -> None:
    page.set(max_tokens=140, seed=1)
    server[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: page.answers()[0])
    page.one("#open-settings").click()
    page.one("#settings [name=top_k]").send_keys(webdriver.Keys.ESCAPE)
    page.until(lambda: not page.one("#settings").is_displayed())
    assert not page.is_idle()
    server[1].delay = 0.0
    page.until(page.is_idle)
    assert "stopped" not in page.one(".assistant .tools").text


def test_a_browser_that_is_full_says_so_and_keeps_the_message(page: Page) -> None:
    page.run(
        "let size = 1 << 22; while (size) { try { localStorage.setItem('fill' + Math.random(), "
        "'x'.repeat(size)); } catch { size >>= 1; } }"
    )
    page.send("hello")
    page.until(lambda: "delete a chat" in page.one("#speed").text)
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


def test_a_model_is_chosen_where_there_are_several(page: Page) -> None:
    assert page.run("models = ['small', 'small:polite']; openSettings()") is None
    choice = page.one("#settings [name=model]")
    assert choice.is_displayed()
    page.run("arguments[0].value = 'small:polite'", choice)
    page.run("arguments[0].dispatchEvent(new Event('input', {bubbles: true}))", choice)
    assert page.run("return asked({messages: []}).model") == "small:polite"
    page.run("models = ['small']; $('settings').close(); openSettings()")
    assert not choice.is_displayed()
    assert page.run("return asked({messages: []}).model") == "small"
    page.run("$('settings').close()")


def test_light_and_dark_small_screens_and_keys(page: Page, tmp_path: Path) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.one("#theme").click()
    assert page.run(ground) != light
    page.driver.refresh()
    assert page.run(ground) != light
    page.one("body").send_keys(webdriver.Keys.ALT, "d")
    assert page.run(ground) == light
    page.driver.set_window_size(420, 760)
    try:
        page.until(lambda: not page.one("#new").is_displayed())
        page.one("#menu").click()
        page.until(lambda: page.one("#new").is_displayed())
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        page.driver.set_window_size(1100, 760)
    page.one("#input").send_keys("a", webdriver.Keys.SHIFT, "\n")
    assert page.one("#input").get_property("value") == "a\n"


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
