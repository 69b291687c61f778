"""Messages, metrics, commands and options in the pages are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfaust.core.model import Counts
from ringfaust.protocol.records import Role
from ringfaust.testing.scenario.grammar import STEPS, Expect
from tests.cli.test_help import COMMANDS
from tests.docs.pages import ROOT, pages

CODE = sorted((ROOT / "ringfaust").rglob("*.py"))
HEADINGS = "message", "the command says", "line", "trace says"
"""Of the columns with what ringfaust prints. `…` stands for what differs, `;` for another one."""


def texts(path: Path) -> Iterator[str]:
    """The texts in a module's code; `…` stands for what is filled in."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


PRINTED = "\n".join(text for path in CODE for text in texts(path))


def quoted(page: Path) -> Iterator[str]:
    """The messages in the page's tables."""
    for heading in HEADINGS:
        pattern = rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)"
        for table in re.findall(pattern, page.read_text("utf-8"), re.MULTILINE):
            for row in table.splitlines():
                yield row.split("|")[1].replace("`", "").strip()


QUOTING = [page for page in pages() if [*quoted(page)]]


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_messages_are_those_that_the_code_prints(page: Path) -> None:
    for message in quoted(page):
        for part in re.split(r"…|;|\(|\)", message):
            assert part.strip(" :,") in PRINTED, f"{message}: {part}"


def test_there_are_messages_to_look_at() -> None:
    assert len([message for page in QUOTING for message in quoted(page)]) > 60


# --- metrics ------------------------------------------------------------------------------------


def described(page: str, heading: str) -> set[str]:
    """The metrics that a section names, without the suffix of counters."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE)
    return {name.removesuffix("_total") for name in re.findall(r"`(ringfaust_\w+)", section)}


def test_the_metrics_of_a_worker_are_described() -> None:
    exporting = [
        path for path in CODE if re.search(r"MetricFamily|\bgauge\(", path.read_text("utf-8"))
    ]
    names = {text for path in exporting for text in texts(path)}
    exported = {name for name in names if re.fullmatch(r"ringfaust_[a-z_]+[a-z]", name)}
    assert described("operations.md", "Metrics and health") == exported


def test_the_metrics_of_the_ring_job_exist() -> None:
    code = (ROOT / "ringfaust" / "spark" / "ring").glob("*.py")
    names = {text.removeprefix("…") for path in code for text in texts(path)}
    metrics = described("spark-ring.md", "Watch it")
    assert len(metrics) > 5
    assert {name.removeprefix("ringfaust_spark_") for name in metrics} <= names | {*Role}


def test_the_metrics_of_the_lake_exist() -> None:
    names = texts(ROOT / "ringfaust" / "spark" / "lake" / "monitor.py")
    exported = {"batches", "batch_seconds", "records", "last_batch_seconds"}
    exported |= {"lag_records", "retention_left_seconds"}
    assert exported <= set(names)
    assert described("lake.md", "Watch it") == {f"ringfaust_lake_{name}" for name in exported}


# --- commands and options -----------------------------------------------------------------------

OPTIONS = {
    name: {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for name, command in COMMANDS.items()
}
GROUPS = {name.split()[0] for name in COMMANDS}
OF_OTHERS = {"--packages", "--archives", "--version", "--show-completion", "--install-completion"}
"""Options of spark-submit, and of `ringfaust` itself."""
WRITTEN = [page for page in pages() if page.name not in ("CHANGELOG.md", "cli.md")]


def command_of(words: list[str]) -> str | None:
    return next((name for n in (2, 1) if (name := " ".join(words[:n])) in COMMANDS), None)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_pages_exist_with_their_options(page: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", page.read_text("utf-8"))
    for line in re.findall(r"(?:`|^ *\$ )(?:[A-Z_]+=\S+ )*ringfaust ([^`\n#]*)", text, re.M):
        words = line.split()
        options = {re.split(r"[=.,);:]", word)[0] for word in words if word.startswith("-")}
        name = command_of(words)
        assert name or words[0] in OF_OTHERS or (len(words) == 1 and words[0] in GROUPS), line
        assert not name or options <= OPTIONS[name] | {"-h", "--help"}, line
    named = set(re.findall(r"`(--[a-z][a-z-]+)", text))
    assert named <= OF_OTHERS.union(*OPTIONS.values())


def sentence(begin: str) -> set[str]:
    """What a sentence of commands.md names as code."""
    words = " ".join((ROOT / "docs" / "commands.md").read_text("utf-8").split())
    return set(re.findall(r"`([^`]+)`", re.split(r"\. ", words.partition(begin)[2])[0]))


def test_the_groups_of_commands_are_listed() -> None:
    assert sentence("The groups are ") == {name.split()[0] for name in COMMANDS if " " in name}


def test_the_commands_that_answer_with_their_exit_status_are_listed() -> None:
    says = re.compile(r"exit status:?\s.*?\b1\b", re.IGNORECASE | re.DOTALL)
    answering = {name for name, command in COMMANDS.items() if says.search(command.help or "")}
    assert sentence("1 is an answer: ") == answering | {"evicted redrive"}


@pytest.mark.parametrize(
    "job", ["ring", "lake", "maintain", "audit", "backfill", "redrive", "rewind"]
)
def test_the_settings_of_a_spark_job_are_its_options(job: str) -> None:
    page = "spark-ring" if job == "ring" else job
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    (section,) = re.findall(r"^## Settings\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    rows = [row.split("|")[1:-1] for row in section.splitlines() if row.startswith("| `--")]
    assert len(rows) > 5 or job == "maintain"
    for cells in rows:
        assert set(re.findall(r"`(--[a-z-]+)", cells[0])) <= OPTIONS[f"spark {job}"]
    defaults = {
        each.opts[0]: each.default
        for each in COMMANDS[f"spark {job}"].params
        if not isinstance(each.default, bool) and each.default is not None
    }
    for cells in rows if len(rows[0]) == 3 else []:
        option = re.findall(r"`(--[a-z-]+)", cells[0])[0]
        if option in defaults:
            assert cells[1].strip(" `").replace(",", "") == str(defaults[option]), option


# --- scenarios ----------------------------------------------------------------------------------


def test_the_grammar_of_scenarios_is_described() -> None:
    text = (ROOT / "docs" / "scenario-format.md").read_text("utf-8")
    steps, expect = re.findall(
        r"^## (?:Steps|expect)\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE
    )
    kinds = {
        kind
        for row in steps.splitlines()
        if row.startswith("| `")
        for kind in re.findall(r"`(\w+):", row.split("|")[1])
    }
    assert kinds == STEPS.keys()
    for kind, model in STEPS.items():
        names = [field.alias or name for name, field in model.model_fields.items()]
        assert [name for name in names if not re.search(rf"\b{name}\b", steps)] == [], kind
    assert [name for name in Expect.model_fields if name not in expect] == []
    (counts,) = re.findall(r"`counts` are checked for the names given: (.*?)\.", expect, re.DOTALL)
    assert {*re.findall(r"`(\w+)`", counts)} == Counts().as_dict().keys()
