"""The documentation site in Chromium: axe finds nothing serious on any of its pages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.console.browser import Browser, needs_chromium
from tests.docs.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), needs_chromium]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-c", "docs", "-d", folder / "doctrees"]
    subprocess.run([*command, ".", folder / "html"], cwd=ROOT, check=True, timeout=240)
    return folder / "html"


@pytest.fixture(scope="module")
def browser(site: Path) -> Iterator[Browser]:
    started = Browser()
    started.base = f"file://{site}/"
    yield started
    started.driver.quit()


def test_pages_are_readable_for_everybody(browser: Browser, site: Path) -> None:
    found: dict[str, list[str]] = {}
    for path in sorted(site.rglob("*.html")):
        page = str(path.relative_to(site))
        for mode in ("light", "dark") if path.parent == site else ("phone",):
            browser.look_like(mode)
            browser.open(page)
            if faults := browser.faults():
                found[f"{page} ({mode})"] = faults
    assert not found


def test_the_search_needs_no_server(browser: Browser) -> None:
    browser.open("search.html?q=evicted")
    browser.until_shown("matching the search query", "body")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("scale out", "docs/how-to/scale-out"),
        ("upgrade", "docs/how-to/upgrade"),
        ("change ring size", "docs/how-to/change-a-ring-size"),
        ("Kafka is down", "docs/how-to/kafka-is-down"),
        ("delete a message", "docs/how-to/delete-a-message"),
        ("redrive dead messages", "docs/how-to/redrive-dead-messages"),
    ],
)
def test_what_people_look_for_has_a_page(browser: Browser, words: str, page: str) -> None:
    """It is among the first three that the search finds."""
    browser.open(f"search.html?q={words.replace(' ', '+')}")
    browser.until_shown("matching the search query", "body")
    links = browser.driver.find_elements("css selector", "#search-results ul.search > li > a")
    first = [str(link.get_attribute("href")).partition("#")[0].partition("?")[0] for link in links]
    assert any(each.endswith(f"{page}.html") for each in first[:3]), first[:5]
