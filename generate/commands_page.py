"""The reference of all commands as a page, `docs/cli.md`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from generate.schemas import OUTPUTS, REPORTS, json_option, output_file
from ringfaust.cli.main import main

_INTRODUCTION = """\
# Command reference

Every command with its options and an example. `make generate` generates this page from the program.
[Operator's commands](commands.md) explains what they have in common, and how to read what `trace`,
`top` and `doctor` print.

Options called *common* below:
"""
_COMMON = ("--config", "--bootstrap-servers", "--application")


class Command(NamedTuple):
    """A command of the program, as its help describes it."""

    name: str
    """Without `ringfaust`, such as `queue ls`."""
    text: str
    example: str
    arguments: list[tuple[str, str]]
    options: list[tuple[str, str]]


def commands() -> list[Command]:
    """Return all commands but the hidden ones, in the order of the help."""
    return list(_commands(typer.main.get_command(main), ()))


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[Command]:
    for name, each in group.commands.items():
        is_group = hasattr(each, "commands")
        if not each.hidden and not (is_group and each.no_args_is_help):
            yield _command(each, " ".join((*path, name)))
        if is_group:
            yield from _commands(each, (*path, name))


def _command(command: Any, name: str) -> Command:
    context = typer.Context(command, info_name=name)
    about = inspect.cleandoc(command.callback.__doc__)  # the help of a group is about the group
    text, _, example = about.partition("Example: ")
    records: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
    for each in command.params:
        if record := each.get_help_record(context):
            records[each.param_type_name].append(record)
    return Command(name, text.strip(), example.strip(), records["argument"], records["option"])


def page() -> str:
    """Return the text of the page."""
    found = commands()
    listing = next(each for each in found if each.name == "queue ls")
    common = [record for record in listing.options if record[0].split()[0] in _COMMON]
    parts = [_INTRODUCTION, _table("option", common)]
    parts.extend(["| command | what it does |", "|---|---|", *map(_line, found)])
    return "\n".join([*parts, *(_section(each, common) for each in found)]) + "\n"


def _line(command: Command) -> str:
    """Return a row of the overview: a link, and the first paragraph of the help."""
    anchor = f"ringfaust-{command.name.replace(' ', '-')}"
    about = " ".join(command.text.partition("\n\n")[0].split())
    return f"| [`{command.name}`](#{anchor}) | {_cell(about)} |"


def _section(command: Command, common: list[tuple[str, str]]) -> str:
    arguments = [re.sub(" <.*", "", shown) for shown, _ in command.arguments]
    own = [record for record in command.options if record not in common]
    usage = ["ringfaust", command.name, *arguments, *(["[OPTIONS]"] if command.options else [])]
    parts = [
        f"\n## ringfaust {command.name}",
        f"```text\n{' '.join(usage)}\n```",
        command.text,
        f"```console\n$ {command.example}\n```",
    ]
    about = [(shown, text) for shown, text in command.arguments if text]
    if about:
        parts.append(_table("argument", about))
    if own:
        parts.append(_table("option", own))
    if len(own) < len(command.options):
        parts.append("And the common options." if own else "It takes the common options.")
    if command.name in OUTPUTS | REPORTS:
        schema = output_file(command.name).removeprefix("docs/schemas/")
        option = json_option(command.name)
        parts.append(f"`{option}` prints [{schema}](schemas/{schema}).")
    return "\n\n".join(part.rstrip("\n") if part[0] != "\n" else part for part in parts)


def _table(heading: str, records: list[tuple[str, str]]) -> str:
    rows = [f"| `{_cell(_type(shown))}` | {_cell(text)} |" for shown, text in records]
    return "\n".join([f"| {heading} | meaning |", "|---|---|", *rows, ""])


def _type(shown: str) -> str:
    """Say `<int>` for what typer calls `<int range>`, and `<str>` for `<list[str]>`."""
    return re.sub(r"<(?:list\[)?(\w+)(?: range)?\]?>", r"<\1>", shown)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("  [", " [")
