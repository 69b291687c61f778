"""The documentation site builds without a warning, and works without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from generate import settings_page
from generate.commands_page import commands
from ringfaust.config.worker import WorkerConfig
from ringfaust.core.settings import WRITTEN_NAMES
from tests.docs.pages import ROOT

LOADED = {"script": "src", "img": "src", "link": "href", "source": "srcset", "iframe": "src"}
"""The attribute by which an element makes a browser load something."""


class Page(HTMLParser):
    """What a page of the site links to and loads, and the places in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if place := given.get("id"):
            self.places.add(place)
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        if loaded := given.get(LOADED.get(tag, "")):
            self.loads.append(loaded)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("furo", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs"]
    done = subprocess.run(
        [*command, "-d", folder / "doctrees", ".", folder / "html"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_built(site: Path, built: dict[Path, Page]) -> None:
    assert (site / "index.html").read_text() == (site / "README.html").read_text()
    names = {str(path.relative_to(site)) for path in built}
    assert {"docs/operations.html", "docs/adr/README.html", "CHANGELOG.html"} <= names


def test_every_link_within_the_site_leads_somewhere(built: dict[Path, Page]) -> None:
    broken = [
        f"{path.name}: {link}" for path, page in built.items() for link in page.links
        if not leads_somewhere(path, link, built)
    ]  # fmt: skip
    assert not broken


def leads_somewhere(path: Path, link: str, built: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not parts.fragment or target not in built:
        return target.exists()
    return unquote(parts.fragment) in built[target].places


def test_nothing_is_loaded_from_elsewhere(site: Path, built: dict[Path, Page]) -> None:
    loaded = {each for page in built.values() for each in page.loads}
    assert not [each for each in loaded if urlsplit(each).scheme not in ("", "data")]
    for path in site.rglob("*.svg"):
        assert not re.search(r"url\(['\"]?https?:|href=\"https?:", path.read_text()), path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", path.read_text()), path.name


def test_the_search_needs_no_server(site: Path) -> None:
    assert '"evict' in (site / "searchindex.js").read_text()


# --- references generated from the code ---------------------------------------------------------


def test_every_setting_has_a_meaning() -> None:
    text = settings_page.page()
    for name in (*WRITTEN_NAMES, *WorkerConfig.model_fields):
        assert re.search(rf"^\| `{name}` \| .* \| \S.* \|$", text, re.MULTILINE), name
    assert not re.search(r"\|  \|$", text, re.MULTILINE)


def test_every_command_has_an_example() -> None:
    assert [each.name for each in commands() if not each.example.startswith("ringfaust ")] == []
