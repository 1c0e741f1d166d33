"""A server with the chat's page, and the page in headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from .browser import Page, Slow
from .running import Running, running, small_service


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[Running, Slow]]:
    service = small_service()
    slow = Slow(service)
    with running(service, page=True) as where:
        yield where, slow


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed: pip install 'evergrad[test]'"
    )
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver_binary = shutil.which("chromedriver")
    if not (binary and driver_binary):
        pytest.skip("Chromium is not installed: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    folder = tmp_path_factory.mktemp("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--window-size=1100,760", f"--user-data-dir={folder}"):  # fmt: skip
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_binary))
    yield driver
    driver.quit()


@pytest.fixture
def page(chromium: Any, shown: tuple[Running, Slow]) -> Page:
    found = Page(chromium, shown[0])
    shown[1].delay = 0.0
    chromium.get(f"{shown[0].url}/")
    found.run("localStorage.clear(); sessionStorage.clear()")
    found.open()
    found.set(max_tokens=30, seed=1)
    return found
