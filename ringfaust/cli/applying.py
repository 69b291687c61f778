"""`ringfaust apply`, `diff` and `history`: the configuration that is in the log (R128)."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs, to start fast

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfaust.cli.operate import (
    AsJson,
    Target,
    Yes,
    confirm,
    operator,
    print_json,
    print_table,
    say,
    with_admin,
    with_options,
)
from ringfaust.errors import RingfaustError
from ringfaust.times import time_text

if TYPE_CHECKING:
    from ringfaust.client import Admin
    from ringfaust.client.configuring import Applied
    from ringfaust.config import QueuesConfig, WorkerConfig
    from ringfaust.config.differences import Difference
    from ringfaust.core.catalog import Configuration

_DIFFERS = 1
"""Exit status of `diff` if something differs; 2 is an error, as for every command."""

Revision = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Use this revision of the log in place of the file."),
]


class NoRevision(RingfaustError):
    """The log does not have this revision (any more). `ringfaust history` lists what it has."""


@dataclass(frozen=True, slots=True)
class ShownDifference:
    """An entry that differs, as `diff` and `apply` print it."""

    section: str
    name: str
    what: str
    before: dict[str, Any]
    now: dict[str, Any]
    text: str
    """It as one line."""


@dataclass(frozen=True, slots=True)
class Diff:
    """What `apply` would change."""

    revision: int
    """The present one; 0: nothing was applied yet."""
    differences: list[ShownDifference]
    behind: dict[int, int]
    """Partitions that use another revision, with that."""
    needs_stop: bool
    """Whether it changes routes, so that all workers have to be stopped for it."""


@dataclass(frozen=True, slots=True)
class AppliedRevision:
    """What `apply` has done."""

    revision: int
    differences: list[ShownDifference]
    partitions: list[int]
    """Those that have taken it up."""
    waiting: list[int]
    """Those that take it up when a worker serves them."""


@dataclass(frozen=True, slots=True)
class ShownRevision:
    """A revision, as `history` prints it."""

    revision: int
    applied_ms: int
    who: str
    text: str
    configuration: dict[str, Any]


def add_to(main: typer.Typer) -> None:
    """Add the commands."""
    for name, command in (("apply", apply), ("diff", diff), ("history", history)):
        main.command(name)(command)


@with_options
def diff(*, target: Target, revision: Revision = None, as_json: AsJson = False) -> None:
    """Show what `apply` would change. Exit status: 0 nothing, 1 something, 2 an error.

    Example: ringfaust diff --config config
    """
    worker, queues = target.load()

    async def look(admin: Admin) -> Diff:
        return (await _look(admin, worker, queues, revision))[1]

    found = with_admin(target, look, needs_worker=False)
    if as_json:
        print_json(found)
    elif found.differences or found.behind:
        _print(found)
    else:
        say(f"nothing differs from revision {found.revision}")
    if found.differences or found.behind:
        raise typer.Exit(_DIFFERS)


@with_options
def apply(
    *,
    target: Target,
    revision: Revision = None,
    message: Annotated[
        str, typer.Option(metavar="TEXT", help="Why. Default: what it changes.")
    ] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Who. Default: USER@HOST.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put queues.yaml into effect, for all partitions at once and without a restart.

    With --revision, put an earlier revision into effect again.

    Example: ringfaust apply --config config --message "a smaller ring" --yes
    """
    worker, queues = target.load()

    async def act(admin: Admin) -> tuple[Diff, Applied | None]:
        wanted, found, is_stopped = await _look(admin, worker, queues, revision)
        if not (found.differences or found.behind):
            return found, None
        if not as_json:
            _print(found)
        confirm(f"This becomes revision {found.revision + 1}.", target.where(), yes=yes)
        applied = await admin.apply(
            wanted,
            who=by or operator(),
            text=message or _summary(found, revision),
            after=found.revision,
            is_stopped=is_stopped,
        )
        return found, applied

    found, applied = with_admin(target, act, needs_worker=False)
    if as_json:
        print_json(
            AppliedRevision(
                applied.revision if applied else found.revision,
                found.differences,
                list(applied.partitions if applied else ()),
                list(applied.waiting if applied else ()),
            )
        )
    elif applied is None:
        say(f"nothing differs from revision {found.revision}")
    else:
        _print_applied(applied)


@with_options
def history(*, target: Target, as_json: AsJson = False) -> None:
    """List what was applied, when and by whom: the newest last.

    Example: ringfaust history
    """
    found = with_admin(target, lambda admin: admin.history(), needs_worker=False)
    if as_json:
        print_json(
            [
                ShownRevision(
                    each.revision, each.applied_ms, each.who, each.text, {**each.document}
                )
                for each in found
            ]
        )
        return
    if not found:
        say("nothing was applied yet: the workers use their queues.yaml")
        return
    print_table(
        ("revision", "applied", "by", "what"),
        [
            (
                each.revision,
                time_text(each.applied_ms) if each.applied_ms else "before revision 1",
                each.who, each.text or "-",
            )
            for each in found
        ],
    )  # fmt: skip


# --- the parts ------------------------------------------------------------------------------------


async def _is_stopped(worker: WorkerConfig) -> bool:
    """Whether no worker of the application is in its group, and no ring job has its rings."""
    from ringfaust.cli.reach import reached
    from ringfaust.kafka.admin import open_admin
    from ringfaust.kafka.changelog_owner import changelog_ends
    from ringfaust.kafka.names import worker_group
    from ringfaust.protocol.records import Role

    worker = await reached(worker)
    changelog = worker.topic(Role.CHANGELOG)
    async with open_admin(worker.brokers()) as brokers:
        if (await brokers.group(worker_group(worker.application))).members:
            return False
        if not await brokers.existing([changelog]):
            return True
    ends = await changelog_ends(worker.client_options(), changelog, worker.partitions)
    return not any(end.job for end in ends)


async def _look(
    admin: Admin, worker: WorkerConfig, queues: QueuesConfig, revision: int | None
) -> tuple[Mapping[str, Any], Diff, bool]:
    """What to apply, what that changes, and whether no worker runs."""
    from ringfaust.config.differences import differences

    is_stopped = await _is_stopped(worker)
    revisions = await admin.history() if is_stopped or revision is not None else []
    if is_stopped and not revisions:
        raise NoRevision(
            "no worker runs, and nothing was applied yet: start the workers with this queues.yaml"
        )
    wanted = queues.document() if revision is None else _content(revision, revisions, worker)
    used = {} if is_stopped else await admin.configuration()
    newest = revisions[-1] if is_stopped else max(used.values(), key=lambda each: each.revision)
    found = differences(newest.document, wanted)
    behind = {n: each.revision for n, each in used.items() if each.revision != newest.revision}
    needs_stop = not is_stopped and any(each.section == "routes" for each in found)
    return wanted, Diff(newest.revision, list(map(_shown, found)), behind, needs_stop), is_stopped


def _content(
    revision: int, revisions: Sequence[Configuration], worker: WorkerConfig
) -> Mapping[str, Any]:
    from ringfaust.config.applied import queues_of
    from ringfaust.protocol.records import Role

    for each in revisions:
        if each.revision == revision:
            return queues_of(each, worker.topic(Role.CONFIGURATION)).document()
    raise NoRevision(f"the log does not have revision {revision}: see `ringfaust history`")


def _shown(each: Difference) -> ShownDifference:
    return ShownDifference(**asdict(each), text=str(each))


def _print(found: Diff) -> None:
    for each in found.differences:
        say(each.text)
    for number, revision in found.behind.items():
        say(f"partition {number} uses revision {revision}, others use {found.revision}")
    if found.needs_stop:
        say("the routes differ: stop all workers, then apply, then start them")


def _summary(found: Diff, revision: int | None) -> str:
    from ringfaust.config.differences import summary

    text = summary([each.text for each in found.differences])
    return text if revision is None else f"back to revision {revision}: {text}"


def _print_applied(applied: Applied) -> None:
    if applied.partitions:
        say(f"revision {applied.revision} is in effect in {len(applied.partitions)} partitions")
    if applied.waiting:
        numbers = ", ".join(map(str, applied.waiting))
        say(
            f"revision {applied.revision} is in the log; partitions {numbers} take it up when a "
            "worker serves them"
        )
