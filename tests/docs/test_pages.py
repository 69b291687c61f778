"""The pages name what exists, use plain wording, and the GitHub workflow runs CI."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ringfaust import client
from tests.docs import recording
from tests.docs.pages import ROOT, pages, without_code

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
BANNED = (
    "in silence", "made anew", "is told", "are told", "whoever", "what came of", "looks whether",
    "**Built:**", "for luck", "so does", "ask for its life", "look first",
    "tell the whole story", "must find room", "as you did the", "processor time", "input positions",
    "people look",
)  # fmt: skip
"""Phrases that no native speaker would write in documentation."""
AREAS = ("deploy", "integrate", "audit", "contribute")


# --- the table "Where things are" ---------------------------------------------------------------


def rows() -> list[tuple[str, list[str], list[str]]]:
    """(question, files, names) of each row of the table."""
    section = re.search(r"^## Where things are\n(.*?)(?=^## )", CONTRIBUTING, re.DOTALL | re.M)
    assert section is not None
    cells = [
        re.split(r"(?<!\\)\|", line)[1:4]
        for line in section[1].splitlines()
        if line.startswith("| ") and not line.startswith("| question ")
    ]
    return [
        (question.strip(), re.findall(r"\]\((ringfaust/[^)#]+)\)", files), names_in(names))
        for question, files, names in cells
    ]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def defined(path: Path) -> Iterator[str]:
    """The functions and classes of a module, and the methods of its classes as `Class.method`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{each.name}"


def test_the_table_answers_what_newcomers_ask() -> None:
    questions = " ".join(question for question, _, _ in rows())
    for asked in ("victim", "committed", "`ringfaust-reason`", "at start", "metric", "rule tested"):
        assert asked in questions


@pytest.mark.parametrize(("question", "files", "names"), rows(), ids=lambda value: str(value)[:40])
def test_the_files_and_names_in_the_table_exist(
    question: str, files: list[str], names: list[str]
) -> None:
    paths = [ROOT / file for file in files]
    assert all(path.exists() for path in paths), files
    found = {name for path in paths if path.suffix == ".py" for name in defined(path)}
    assert set(names) <= found, f"{question}: {sorted(set(names) - found)} not in {files}"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_modules_that_a_page_names_exist(page: str) -> None:
    text = without_code(ROOT / page)
    named = set(re.findall(r"`((?:ringfaust|tests|config|docs|bench)/[\w./-]*\w)/?`", text))
    planned = {"ringfaust/worker/observe/metrics.py"}
    missing = {name for name in named - planned if not (ROOT / name).exists()}
    assert not missing


def below(kind: type[Exception]) -> Iterator[type[Exception]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def test_the_errors_of_the_client_are_described_and_can_be_imported() -> None:
    page = (ROOT / "docs/client.md").read_text()
    table = page.partition("| error | meaning |\n")[2].partition("\n\n")[0]
    errors = [each for each in below(client.ClientError) if "ringfaust.client" in each.__module__]
    known = {each.__name__ for each in errors}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == known
    assert known <= {*client.__all__}


# --- wording ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_contain_no_banned_phrase(page: Path) -> None:
    text = " ".join(without_code(page).split()).lower()
    assert not [phrase for phrase in BANNED if phrase.lower() in text]


# --- commands and indexes -----------------------------------------------------------------------


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_in_pages_exist(page: Path) -> None:
    named = set(re.findall(r"(?:`|^\$ )make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
    assert named <= targets()


def test_the_readme_begins_with_the_demo_and_names_the_two_commands() -> None:
    assert README.index("$ make demo") < README.index("\n## ")
    assert "$ make demo" in README and "$ make test " in README


def test_the_readme_shows_the_demo_as_it_was_recorded() -> None:
    assert recording.DRAWING.read_text() == recording.draw(recording.shown(recording.read()))
    first_screen = README.partition("\n## ")[0]
    assert "(docs/images/demo.svg)" in first_screen
    assert "(docs/images/console-overview-light.png)" in first_screen


def test_the_readme_lists_the_pages_by_reader() -> None:
    section = README.partition("## Documentation\n")[2]
    for reader in AREAS:
        assert f"| **{reader}** |" in section
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", README))
    assert linked == {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}


def test_one_page_alone_says_how_to_install() -> None:
    """No package index has ringfaust yet: a release changes that page, and not ten."""
    named = re.compile(r"pip install ['\"]?ringfaust")
    assert "is on no package index yet" in (ROOT / "docs/install.md").read_text()
    told = [page for page in pages() if "adr" not in page.parts]
    told += (ROOT / "ringfaust").rglob("*.py")
    assert not [page for page in told if named.search(page.read_text())]


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    listed = re.findall(r"^\d+\. \[.*\]\(([\w-]+\.md)\)$", index, re.MULTILINE)
    assert listed == sorted(path.name for path in (ROOT / "docs/adr").glob("0*.md"))


def test_the_glossary_fits_on_a_page() -> None:
    assert len((ROOT / "docs/glossary.md").read_text().splitlines()) <= 60


# --- the workflow -------------------------------------------------------------------------------


def test_the_workflow_runs_ci_on_each_version_of_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    steps = job["steps"]
    assert steps[-1]["run"] == ".ci/run"
    used = {step["uses"].partition("@")[0]: step.get("with", {}) for step in steps[:-1]}
    assert used["actions/setup-python"]["python-version"] == "${{ matrix.python }}"
    assert used["actions/setup-java"]["java-version"] == "17"
    assert "actions/checkout" in used
    assert job["env"] == {"PYTHON": "python"}


def test_the_makefile_takes_the_interpreter_from_the_environment() -> None:
    assert re.search(r"^PYTHON \?= ", MAKEFILE, re.MULTILINE)
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
