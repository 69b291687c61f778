"""`ringfaust init`: five questions, and a configuration that works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import questionary
import typer

from ringfaust.cli.operate import say
from ringfaust.cli.topics import create
from ringfaust.config import WorkerConfig, load, load_worker
from ringfaust.config.documents import ConfigError
from ringfaust.config.starter import FilesExist, StarterAnswers, starter_files, write_starter
from ringfaust.errors import RingfaustError
from ringfaust.kafka.admin import open_admin
from ringfaust.protocol.records import Role

_SHOWN = 2000
"""The most topics that are offered; typing narrows the list."""
_NEW = "a new topic"
_EXAMPLE = "orders"
_RING_SIZE = 1000


class InitStopped(RingfaustError):
    """The user broke off; nothing was written."""

    def __init__(self) -> None:
        super().__init__("stopped; nothing was written")


class NoTerminal(RingfaustError):
    """There is nobody to ask."""

    def __init__(self) -> None:
        super().__init__(
            "there is no terminal to ask questions: give the answers as options, and --yes"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Answers from the command line; what is None is asked, or has its default with `yes`."""

    servers: str | None
    application: str | None
    topics: tuple[str, ...]
    per_key: bool | None
    ring_size: int | None
    yes: bool


def run(folder: Path, given: Given) -> int:
    """Ask, write the configuration, check it, and offer to create the topics.

    Returns:
        1 if a topic that existed before is wrong, so that no worker can start; else 0.

    Raises:
        FilesExist: the folder has a configuration.
        InitStopped: the user broke off.
        BrokerUnreachable: no broker answers.
        ConfigError: an answer is not possible, such as an application's name.
    """
    for name in ("queues.yaml", "worker.yaml"):
        if (folder / name).exists():
            raise FilesExist(folder / name)
    servers = given.servers or _ask(
        given, "127.0.0.1:9092",
        lambda: questionary.text(
            "1/5  Which brokers? (host:port)", default="127.0.0.1:9092",
            validate=lambda text: _fault(bootstrap_servers=text),
        ),
    )  # fmt: skip
    partitions_of = asyncio.run(_topics(load_worker(None, bootstrap_servers=servers)))
    answers = StarterAnswers(
        servers=servers,
        topics=given.topics or _which_topics(given, partitions_of),
        per_key=_per_key(given),
        ring_size=given.ring_size or int(_ring_size(given)),
        application=given.application or _application(given),
    )
    write_starter(starter_files(answers, partitions_of), folder)
    try:
        # What was answered wins over variables of the environment, as on a command line.
        worker, queues = load(
            folder, bootstrap_servers=answers.servers, application=answers.application
        )
    except ConfigError:
        for name in ("queues.yaml", "worker.yaml"):
            (folder / name).unlink()
        raise
    say(f"wrote and checked {folder / 'queues.yaml'} and {folder / 'worker.yaml'}")
    creates = given.yes or _ask(
        given, True, lambda: questionary.confirm("Create the missing topics now?")
    )
    if creates and create(worker, queues):
        return 1
    say(f"next: ringfaust worker --config {folder}")
    return 0


async def _topics(worker: WorkerConfig) -> dict[str, int]:
    """Return the number of partitions of each topic that a user may have made."""
    async with open_admin(worker.brokers()) as admin:
        names = [name for name in await admin.names() if not _is_ours(name)]
        found = await admin.existing(names)
    return {name: found[name].partitions for name in sorted(found)}


def _is_ours(name: str) -> bool:
    return name.startswith("__") or name.rpartition(".")[2] in set(Role) - {Role.PRODUCER}


def _which_topics(given: Given, partitions_of: Mapping[str, int]) -> tuple[str, ...]:
    names = list(partitions_of)[:_SHOWN]
    if given.yes:
        return tuple(names) or (_EXAMPLE,)
    chosen: list[str] = []
    if names:
        chosen = _ask(given, [], lambda: questionary.checkbox(
            "2/5  Which topics feed queues?", choices=[_NEW, *names],
            validate=lambda some: bool(some) or "select one with the space bar",
            use_search_filter=True, use_jk_keys=False,
        ))  # fmt: skip
    if not names or _NEW in chosen:
        new = _ask(given, _EXAMPLE, lambda: questionary.text(
            "2/5  Name of the new topic?", default=_EXAMPLE,
            validate=lambda text: bool(text.strip()) or "a topic needs a name",
        ))  # fmt: skip
        chosen = [*(name for name in chosen if name != _NEW), new.strip()]
    return tuple(chosen)


def _per_key(given: Given) -> bool:
    if given.per_key is not None:
        return given.per_key
    one, each = "one ring for each topic", "one ring for each key of a topic"
    chosen = _ask(
        given, one, lambda: questionary.select("3/5  How many rings?", choices=[one, each])
    )
    return bool(chosen == each)


def _ring_size(given: Given) -> str:
    return str(_ask(given, str(_RING_SIZE), lambda: questionary.text(
        "4/5  How many messages does a ring keep?", default=str(_RING_SIZE),
        validate=lambda text: (text.isdecimal() and 0 < int(text) < 1 << 63)
        or "a whole number, 1 or more",
    )))  # fmt: skip


def _application(given: Given) -> str:
    return str(_ask(given, "ringfaust", lambda: questionary.text(
        "5/5  What is the application called? (prefix of its topics)", default="ringfaust",
        validate=lambda text: _fault(application=text),
    )))  # fmt: skip


def _fault(**setting: str) -> bool | str:
    """Return True if a setting of worker.yaml may have this value, else what is wrong."""
    try:
        load_worker(None, **setting)
    except ConfigError as error:
        return error.faults[0].text
    return True


def _ask(given: Given, default: Any, question: Callable[[], questionary.Question]) -> Any:
    """Return the default with --yes, else the answer.

    Raises:
        InitStopped: the user pressed Ctrl-C.
        NoTerminal: the input is no terminal.
    """
    if given.yes:
        return default
    if not typer.get_text_stream("stdin").isatty():
        raise NoTerminal
    answer = question().ask()
    if answer is None:
        raise InitStopped
    return answer
