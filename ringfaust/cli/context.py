"""`ringfaust context …`: name applications, and choose the one that commands use."""

# ruff: noqa: PLC0415 - what is imported inside functions is slow to import

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust.cli.operate import AsJson, Target, print_fields, print_json, print_list, say
from ringfaust.cli.parts import group

if TYPE_CHECKING:
    from ringfaust.config.contexts import ContextConfig

context = group("Name applications, and choose the one that commands use.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")]


@dataclass(frozen=True, slots=True)
class ListedContext:
    """A context. `ls` has what is stored: what is null there follows from the configuration."""

    name: str
    is_current: bool
    config: str | None
    """Its configuration folder."""
    bootstrap_servers: str | None
    application: str | None

    @classmethod
    def of(cls, name: str, current: str | None, found: ContextConfig) -> ListedContext:
        """Read one."""
        return cls(name, name == current, found.config, found.bootstrap_servers, found.application)


@context.command("ls")
def list_contexts(*, as_json: AsJson = False) -> None:
    """List the contexts.

    Example: ringfaust context ls
    """
    from ringfaust.config.contexts import read_contexts

    known = read_contexts()
    found = [ListedContext.of(name, known.current, each) for name, each in known.contexts.items()]
    print_list(
        found, ("context", "current", "config", "bootstrap servers", "application"),
        lambda each: (
            each.name, "current" if each.is_current else "", each.config or "",
            each.bootstrap_servers or "", each.application or "",
        ),
        as_json=as_json, nothing="there are no contexts; `ringfaust context add` adds one",
    )  # fmt: skip


@context.command("use")
def use(*, name: Name) -> None:
    """Choose the application of all commands that name no other.

    A command names one with --config, --bootstrap-servers or --application, or with the variables
    RINGFAUST_CONFIG, RINGFAUST_BOOTSTRAP_SERVERS or RINGFAUST_APPLICATION.

    Example: ringfaust context use shop
    """
    from ringfaust.config.contexts import (
        context_of,
        naming_variables,
        read_contexts,
        write_contexts,
    )

    known = read_contexts()
    where = _target(context_of(known, name)).where()
    write_contexts(known.model_copy(update={"current": name}))
    say(f"commands now use the context {name}: {where}")
    if found := naming_variables():
        say(f"but not in this shell, where {' and '.join(found)} names another", to_errors=True)


def _target(found: ContextConfig) -> Target:
    folder = None if found.config is None else Path(found.config)
    return Target(folder, found.bootstrap_servers, found.application)


@context.command("show")
def show(
    *,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Default: the current one.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show a context, and which application and brokers it leads to.

    Example: ringfaust context show
    """
    from ringfaust.config.contexts import BadContext, context_of, read_contexts

    known = read_contexts()
    if not name and known.current is None:
        raise BadContext("no context is chosen; `ringfaust context use NAME` chooses one")
    name = name or str(known.current)
    found = context_of(known, name)
    worker, _ = _target(found).load()
    shown = replace(
        ListedContext.of(name, known.current, found),
        application=worker.application,
        bootstrap_servers=worker.bootstrap_servers,
    )
    if as_json:
        print_json(shown)
        return
    print_fields([
        ("context", name),
        ("current", shown.is_current),
        ("config", shown.config or "-"),
        ("application", shown.application),
        ("bootstrap servers", shown.bootstrap_servers),
    ])  # fmt: skip


@context.command("add")
def add(*, name: Name, target: Target) -> None:
    """Add a context: where its configuration is, or its brokers and application.

    It is stored in your configuration folder, and has no secrets: the files stay where they are.

    Example: ringfaust context add shop --config shop
    """
    from ringfaust.config.contexts import (
        BadContext,
        ContextConfig,
        contexts_file,
        read_contexts,
        write_contexts,
    )

    if target == Target():
        raise BadContext(
            "name the application: give --config, --bootstrap-servers or --application"
        )
    try:
        f"{name}{target.folder}".encode()
    except UnicodeEncodeError:
        raise BadContext("name and folder must be UTF-8 text, as the file of contexts is") from None
    known = read_contexts()
    if name in known.contexts:
        raise BadContext(f"there is a context {name!r} already; `ringfaust context rm` removes it")
    where = target.where()
    added = ContextConfig(
        config=None if target.folder is None else str(target.folder.resolve()),
        bootstrap_servers=target.bootstrap_servers,
        application=target.application,
    )
    write_contexts(known.model_copy(update={"contexts": {**known.contexts, name: added}}))
    say(f"{name}: added to {contexts_file()}: {where}")


@context.command("rm")
def remove(*, name: Name) -> None:
    """Remove a context. Nothing of the application changes.

    Example: ringfaust context rm shop
    """
    from ringfaust.config.contexts import Contexts, context_of, read_contexts, write_contexts

    known = read_contexts()
    context_of(known, name)
    left = {other: each for other, each in known.contexts.items() if other != name}
    current = None if known.current == name else known.current
    write_contexts(Contexts(current=current, contexts=left))
    say(f"{name}: removed" + ("" if current or not left else "; no context is chosen now"))
