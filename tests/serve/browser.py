"""The chat's page in headless Chromium, as a person uses and sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .running import Running

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

    def keep(self, answer: str, question: str = HOSTILE) -> None:
        """Show a chat of one turn with this answer."""
        turn = {"key": "a", "chat": "x", "at": 1, "question": question,
                "answer": {"key": "b", "text": answer}}  # fmt: skip
        self.run(
            "localStorage.clear(); saveTurn(arguments[0], []); "
            "sessionStorage.setItem('current', 'x')", turn,
        )  # fmt: skip
        self.driver.refresh()

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
