"""The help of every command, the published schemas, and shell completion."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

import pytest
import typer
from click.core import Command, Group
from typer.testing import CliRunner

from generate.files import ROOT
from generate.schemas import OUTPUTS, output_file
from ringfaust import __version__
from ringfaust.cli.main import main


def leaves(command: Command, name: str = "") -> Iterator[tuple[str, Command]]:
    """Every command that does something, by its name."""
    if isinstance(command, Group) or hasattr(command, "commands"):
        if not command.no_args_is_help and name:  # `ringfaust worker` runs one
            yield name, command
        for each in command.commands.values():  # type: ignore[attr-defined]
            yield from leaves(each, f"{name} {each.name}".strip())
    else:
        yield name, command


COMMANDS = dict(leaves(typer.main.get_command(main)))


def name_of(arguments: Sequence[str]) -> str:
    """The command that the arguments name."""
    return next(
        name for count in (2, 1) if (name := " ".join(arguments[:count])) in COMMANDS
    )  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_an_example_that_fits(name: str) -> None:
    """The example has only options that exist."""
    command = COMMANDS[name]
    _, found, example = (command.help or "").partition("Example: ringfaust ")
    assert found, f"{name}: its help has no example"
    words = shlex.split(example.splitlines()[0])
    assert words[: len(name.split())] == name.split()
    options = {option for each in command.params for option in each.opts}
    used = {word for word in words if word.startswith("-")}
    assert used <= options
    missing = [
        each.name for each in command.params
        if each.required and each.param_type_name == "option" and not used & set(each.opts)
    ]  # fmt: skip
    assert not missing


@pytest.mark.parametrize("name", COMMANDS)
def test_h_shows_the_help(name: str) -> None:
    result = CliRunner().invoke(main, [*name.split(), "-h"])
    assert (result.exit_code, result.stdout.startswith("Usage: ")) == (0, True)


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout.startswith(f"{__version__} (")


def test_completion_knows_the_commands_and_their_options() -> None:
    for words, known in (("evicted ", "redrive"), ("queue set --bo", "--bootstrap-servers")):
        request = {
            "_RINGFAUST_COMPLETE": "complete_bash",
            "COMP_WORDS": f"ringfaust {words}",
            "COMP_CWORD": str(len(words.split(" "))),
        }
        shown = CliRunner().invoke(main, [], env=request, prog_name="ringfaust")
        assert known in shown.stdout.split()


# --- schemas ------------------------------------------------------------------------------------


def test_every_command_with_json_has_a_published_schema() -> None:
    """But those on Spark, which print findings of their own."""
    with_json = {
        name for name, command in COMMANDS.items()
        if any("--json" in each.opts for each in command.params)
    }  # fmt: skip
    assert {name for name in with_json if not name.startswith("spark ")} - {"redrive"} == {*OUTPUTS}
    for name in OUTPUTS:
        title = json.loads((ROOT / output_file(name)).read_text("utf-8"))["title"]
        assert title == f"Output of ringfaust {name} --json"
