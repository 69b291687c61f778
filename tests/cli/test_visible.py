"""Bodies, ids, reasons and names of others do nothing on an operator's terminal."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from ringfaust.cli import operate
from ringfaust.logs import VisibleFormatter
from ringfaust.terminal import Terminal
from ringfaust.visible import visible, visible_json

CLI = Path(operate.__file__).parent
HOSTILE = "a\x1b[2J\x1b]0;t\x07\r\x08\x7f\x9b31m\u202eb\u2066\u200b\n\tc"
SHOWN = r"a\x1b[2J\x1b]0;t\x07\r\x08\x7f\x9b31m\u202eb\u2066\u200b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HOSTILE, SHOWN + r"\n\tc"), ("plain ü 漢 🙂", "plain ü 漢 🙂"), ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"), ("\u2028\xa0", r"\u2028\xa0"), ("", ""),
    ],
)  # fmt: skip
def test_what_steers_a_terminal_is_seen(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_text_of_several_lines_keeps_them() -> None:
    assert visible(HOSTILE, keeps_lines=True) == SHOWN + "\n\tc"


def test_json_stays_exact_and_steers_nothing() -> None:
    value = {HOSTILE: [HOSTILE, "\U000e0041", "ü"]}
    text = visible_json(value, indent=2)
    assert json.loads(text) == value
    assert visible(text, keeps_lines=True) == text
    assert "ü" in text


@pytest.mark.parametrize(
    "write",
    [
        lambda: operate.say(HOSTILE, "next"),
        lambda: operate.print_fields([(HOSTILE, HOSTILE)]),
        lambda: operate.print_table((HOSTILE, "b"), [(HOSTILE, HOSTILE)]),
        lambda: operate.say_text(HOSTILE),
        lambda: operate.print_json(HOSTILE),
    ],
)
def test_everything_that_commands_print_is_escaped(
    write: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    write()
    out = capsys.readouterr().out
    assert visible(out, keeps_lines=True) == out
    assert r"\u202e" in out


def test_a_table_with_styles_is_escaped() -> None:
    file = io.StringIO()
    out = Terminal(file=file, width=300)
    table = Table("[red]red[/]", HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE, "b")
    out.print(table)
    out.print(HOSTILE, markup=False)
    assert visible(file.getvalue(), keeps_lines=True) == file.getvalue()
    assert isinstance(out, Console) and "[red]" not in file.getvalue()


def test_the_log_of_a_worker_is_escaped() -> None:
    record = logging.LogRecord("ringfaust", logging.INFO, "", 1, "of %s", (HOSTILE,), None)
    line = VisibleFormatter("%(message)s").format(record)
    assert line == f"of {SHOWN}\n\tc"


@pytest.mark.parametrize("file", sorted(CLI.glob("*.py")), ids=lambda file: file.name)
def test_commands_print_in_one_place(file: Path) -> None:
    """`say` and its neighbours in `operate` escape; `print` does not."""
    if file.name == "operate.py":
        return
    called = [
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
    ]
    allowed = {"typer.secho"} if file.name == "parts.py" else set()
    assert not {"print", "Console", "typer.echo", "typer.secho"} & {*called} - allowed
