"""The look and the controls of the chat's page in headless Chromium: markup, keys, colours."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .browser import HOSTILE, Page, Slow
from .running import Running

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="selenium is not installed: pip install 'evergrad[test]'"
)


def test_hostile_text_is_shown_as_text(page: Page) -> None:
    page.send(HOSTILE)
    page.until(lambda: page.is_idle() and page.questions())
    assert page.questions() == [HOSTILE]
    code, heading = f"```{HOSTILE}\n{HOSTILE}\n```", f"# {HOSTILE}"
    table = f"|{HOSTILE}|`{HOSTILE}`|\n|-|-|\n|**<b>**|a|"
    page.keep("\n".join((HOSTILE, code, heading, table)))
    page.until(lambda: page.answers())
    assert page.answers()[0].count(HOSTILE) == 6
    assert page.one("#chats .name").text == HOSTILE[:60]
    assert not page.all("#log img, #log script, #log b, #chats img")
    assert page.all("#log pre code") and page.driver.title == "evergrad chat"


def test_escape_closes_the_settings_and_stops_nothing(
    page: Page, shown: tuple[Running, Slow]
) -> None:
    page.set(max_tokens=140, seed=1)
    shown[1].delay = 0.05
    page.send("tell me")
    page.until(lambda: page.answers()[0])
    page.one("#open-settings").click()
    page.one("#settings [name=top_k]").send_keys(webdriver.Keys.ESCAPE)
    page.until(lambda: not page.one("#settings").is_displayed())
    assert not page.is_idle()
    shown[1].delay = 0.0
    page.until(page.is_idle)
    assert "stopped" not in page.one(".assistant .tools").text


def test_a_model_is_chosen_where_there_are_several(page: Page) -> None:
    assert page.run("models = ['small', 'small:polite']; openSettings()") is None
    choice = page.one("#settings [name=model]")
    assert choice.is_displayed()
    page.run("arguments[0].value = 'small:polite'", choice)
    page.run("arguments[0].dispatchEvent(new Event('input', {bubbles: true}))", choice)
    assert page.run("return asked([], {question: 'a'}).model") == "small:polite"
    page.run("models = ['small']; $('settings').close(); openSettings()")
    assert not choice.is_displayed()
    assert page.run("return asked([], {question: 'a'}).model") == "small"
    page.run("$('settings').close()")


def test_tables_code_and_headings_are_shown_and_the_rest_is_as_it_came(page: Page) -> None:
    page.keep(
        "a\n```py\nx = 1\n```\n\n## B `c`\n| d | e |\n|---|--:|\n| **f** | a*b*c |\nend\n\nlast"
    )
    page.until(lambda: page.answers())
    assert page.one(".code code").text == "x = 1" and page.one(".code .head span").text == "py"
    assert [one.text for one in page.all("th, td")] == ["d", "e", "f", "a*b*c"]
    assert page.one("strong.heading").text == "B c" and page.one("td strong").text == "f"
    assert page.answers()[0].endswith("end\n\nlast")


PLAIN = ["| a", "|-|", "a | b\n-", "``", "**", "`a\n`", "#a", "# ", "a\n|-|-|\nb", "***a***",
         "| a | b |\n|-|\n", "\n\n", "  a  \n b", "a ** b ** c\n**", "|", "|\n|"]  # fmt: skip
SHOWN = """
const place = document.createElement('div'); place.append(...rendered(arguments[0]));
place.querySelectorAll('.head').forEach((head) => head.remove()); return place.textContent
"""


def test_what_is_no_markup_or_not_yet_is_text(page: Page) -> None:
    """Answers come in pieces: a table or a fence may be half there."""
    assert [page.run(SHOWN, text) for text in PLAIN] == PLAIN
    for text, shown in (("```", ""), ("~~~\na", "a"), ("```\n``\n", "``\n"), ("````\n```", "```")):
        assert page.run(SHOWN, text) == shown


def test_keys_reach_everything_and_the_focus_stays(page: Page) -> None:
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    found = []
    page.run("document.activeElement.blur()")
    for _ in range(30):
        page.driver.switch_to.active_element.send_keys(webdriver.Keys.TAB)
        focused = page.driver.switch_to.active_element
        found.append(focused.get_attribute("id") or focused.text)
    order = ["Skip to the message", "new", "one", "\u00d7", "theme", "open-settings", "log", "Copy",
             "Edit", "Copy", "Regenerate", "input", "send"]  # fmt: skip
    found = found[found.index(order[0]) :]
    assert [name for name in found if name in order][: len(order)] == order
    page.run("[...document.querySelectorAll('.tools button')].at(-1).focus()")
    page.driver.switch_to.active_element.send_keys("\n")
    page.until(page.is_idle)
    page.until(lambda: page.run("return document.activeElement !== document.body"))
    page.tool("Edit")
    assert page.driver.switch_to.active_element.tag_name == "textarea"
    page.driver.switch_to.active_element.send_keys("\ue00c")
    assert page.driver.switch_to.active_element.text == "Edit"


def test_an_edit_in_progress_outlives_what_other_tabs_write(page: Page) -> None:
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    page.tool("Edit")
    area = page.driver.switch_to.active_element
    area.send_keys(" more")
    page.run(
        "const seen = turnsOf(current()); saveTurn(newTurn(current(), 'two', seen), seen);"
        "dispatchEvent(new StorageEvent('storage', {key: `turn:${current()}:x`}))"
    )
    assert len(page.answers()) == 2
    assert area.get_property("value") == "one more"
    assert page.driver.switch_to.active_element == area


def test_a_chat_is_deleted_on_the_second_press(page: Page) -> None:
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    page.one("#chats .gone").click()
    assert page.one("#chats .gone").text == "Delete?" and page.answers()
    page.one("#input").click()
    assert page.one("#chats .gone").text == "\u00d7"
    page.one("#chats .gone").click()
    page.one("#chats .gone").click()
    page.until(lambda: not page.all("#chats li") and page.one("#empty").is_displayed())
    assert page.run("return Object.keys(localStorage).filter((k) => /^(turn|chat)/.test(k))") == []


CONTRAST = """
const light = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (node) => {
  for (; node; node = node.parentElement) {
    const found = getComputedStyle(node).backgroundColor;
    if (!/, 0\\)$/.test(found)) return found;
  }
};
return [...document.querySelectorAll("button, .body, .tools span, #model, #speed, dt, dd, h1")]
  .filter((node) => node.checkVisibility() && node.textContent.trim()).map((node) => {
    const [a, b] = [light(getComputedStyle(node).color), light(ground(node))].sort().reverse();
    return [node.textContent, (a + 0.05) / (b + 0.05)];
  });
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast(page: Page, theme: str) -> None:
    page.send("one")
    page.until(lambda: page.is_idle() and page.answers())
    page.run("theme(arguments[0])", theme)
    time.sleep(0.1)
    low = [(text, ratio) for text, ratio in page.run(CONTRAST) if ratio < 4.5]
    assert not low


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
