"""`ringfaust upgrade …`: the versions that run, and the end of an upgrade (R129)."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs, to start fast

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust.cli.operate import (
    AsJson,
    Target,
    Yes,
    confirm,
    connect_options,
    operator,
    print_json,
    print_table,
    say,
    with_application,
)
from ringfaust.cli.parts import group
from ringfaust.cli.worker import partitions_text, ranges
from ringfaust.core import levels
from ringfaust.errors import RingfaustError
from ringfaust.times import time_text, wall_ms

if TYPE_CHECKING:
    from ringfaust.client import Admin, WorkerStatus
    from ringfaust.config import WorkerConfig
    from ringfaust.protocol.revisions import RaisedLevel

upgrade = group("See which versions run, and finish an upgrade.")

_UNFINISHED = 1
"""Exit status of `status` if there is something to do; 2 is an error, as for every command."""


class NotFinished(RingfaustError):
    """The upgrade cannot be finished yet. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class UpgradingWorker:
    """A worker that runs."""

    worker: str
    version: str
    oldest: int
    """The oldest feature level that it supports."""
    newest: int
    partitions: dict[int, int]
    """By partition that it serves: the feature level in use."""


@dataclass(frozen=True, slots=True)
class UpgradeStatus:
    """How far an upgrade is."""

    level: int
    """The feature level of the application."""
    newest: int
    """The one that this version of ringfaust would use."""
    who: str
    """Who has raised the level last; empty: nobody has."""
    raised_ms: int
    workers: list[UpgradingWorker]
    behind: dict[int, int]
    """Partitions that use a lower level than the application, with that."""
    too_old: list[str]
    """Workers that do not support `newest`: they have to be upgraded first."""
    silent: int
    """How many workers are in the group and have not said what they support."""

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to do."""
        return self.level >= self.newest and not (self.behind or self.too_old)


@dataclass(frozen=True, slots=True)
class FinishedUpgrade:
    """What `upgrade finish` has done."""

    level: int
    partitions: list[int]
    """Those that it has told, and that use the level."""
    waiting: list[int]
    """Those that take it up when a worker serves them."""


@upgrade.command()
def status(*, target: Target, as_json: AsJson = False) -> None:
    """Show the versions that run. Exit status: 0 all is done, 1 not finished, 2 an error.

    Example: ringfaust upgrade status
    """
    worker, _ = target.load()
    found = with_application(worker, look, needs_worker=False)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if not found.is_finished:
        raise typer.Exit(_UNFINISHED)


@upgrade.command()
def finish(
    *,
    target: Target,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who. Default: USER@HOST.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let the workers use what this version brings. Then no older version can run any more.

    Example: ringfaust upgrade finish
    """
    worker, _ = target.load()

    async def act(admin: Admin, worker: WorkerConfig) -> FinishedUpgrade:
        found = await look(admin, worker)
        if found.is_finished:
            return FinishedUpgrade(found.level, [], [])
        _refuse(found)
        what = f"Versions that do not support feature level {found.newest} cannot run afterwards."
        confirm(what, target.where(), yes=yes)
        raised = await admin.raise_level(found.newest, who=by or operator())
        return FinishedUpgrade(raised.level, [*raised.partitions], [*raised.waiting])

    done = with_application(worker, act, needs_worker=False)
    if as_json:
        print_json(done)
        return
    if not (done.partitions or done.waiting):
        say(f"nothing to do: feature level {done.level} is in use")
    if done.partitions:
        say(f"feature level {done.level} is in use in {partitions_text(done.partitions)}")
    if done.waiting:
        say(f"a worker takes it up when it serves {partitions_text(done.waiting)}")


# --- the parts ------------------------------------------------------------------------------------


async def look(admin: Admin, worker: WorkerConfig) -> UpgradeStatus:
    """What runs, and which level is in use. `worker`: with a bootstrap server that answers."""
    from ringfaust.cli.reach import started
    from ringfaust.client import StatusReader
    from ringfaust.kafka.admin import running_workers

    members = len(await running_workers(worker.brokers()))
    async with started(StatusReader(**connect_options(worker)), worker) as published:
        found = published.workers()
    return judge(await admin.feature_level(), found, members, wall_ms())


def judge(
    raised: RaisedLevel, found: Sequence[WorkerStatus], members: int, now_ms: int
) -> UpgradeStatus:
    """How far an upgrade is.

    Args:
        raised: the level of the application.
        found: what workers have published.
        members: how many are in the group.
        now_ms: the time, in ms since 1970.
    """
    running = [each for each in found if not each.is_stale(now_ms)]
    newest = max(levels.NEWEST, raised.level)
    return UpgradeStatus(
        raised.level, newest, raised.who, raised.raised_ms,
        [
            UpgradingWorker(each.worker, each.version, *each.levels, _used(each))
            for each in running
        ],
        _behind(running, raised.level),
        [f"{each.worker} ({each.version})" for each in running if each.levels[1] < newest],
        max(members - len(running), 0),
    )  # fmt: skip


def _used(status: WorkerStatus) -> dict[int, int]:
    """The level of each partition that it serves. Version 0.2.0 does not say it: it is 1."""
    return {number: status.level.get(number, 1) for number in status.partitions}


def _behind(running: Sequence[WorkerStatus], level: int) -> dict[int, int]:
    used = {number: each for status in running for number, each in _used(status).items()}
    return {number: each for number, each in sorted(used.items()) if each < level}


def _refuse(found: UpgradeStatus) -> None:
    """Refuse to finish while a worker would be shut out by that.

    Raises:
        NotFinished: one would.
    """
    if found.too_old:
        raise NotFinished(
            f"these workers do not support feature level {found.newest}: "
            f"{', '.join(found.too_old)}. Nothing was changed. Upgrade them first; one that was "
            "killed a moment ago counts for 20 s"
        )
    if found.silent:
        raise NotFinished(
            f"{found.silent} workers of the group have not said what they support. Nothing was "
            "changed. Try again in a few seconds"
        )
    if not found.workers:
        raise NotFinished(
            "no worker runs. Nothing was changed. Start the workers of the new version first"
        )


def _print(found: UpgradeStatus) -> None:
    by = f", since {time_text(found.raised_ms)} by {found.who}" if found.raised_ms else ""
    say(f"feature level {found.level} is in use{by}")
    print_table(
        ("worker", "version", "supports", "partitions"),
        [
            (each.worker, each.version, f"{each.oldest}-{each.newest}", ranges(each.partitions))
            for each in found.workers
        ],
    )
    for number, level in found.behind.items():
        say(f"partition {number} uses level {level}: `ringfaust upgrade finish` tells it again")
    if found.too_old:
        say(f"to upgrade, for level {found.newest}: {', '.join(found.too_old)}")
    elif found.level < found.newest and found.workers:
        say(f"all workers support level {found.newest}: `ringfaust upgrade finish` allows it")
