"""`ringfaust partition …`: which worker serves each, and what to do about one that has stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ringfaust.cli.operate import (
    AsJson,
    Target,
    Yes,
    approve,
    changed,
    confirm,
    operator,
    print_fields,
    print_json,
    print_table,
    with_admin,
    with_status,
)
from ringfaust.cli.parts import group
from ringfaust.errors import RingfaustError
from ringfaust.times import age_text, wall_ms

if TYPE_CHECKING:
    from ringfaust.client import WorkerStatus

partition = group("Look at partitions, and steer those that have stopped.")

Number = Annotated[
    str,
    typer.Argument(
        metavar="PARTITION",
        help="Its number; or TOPIC/NUMBER, for a partition of a topic that is repartitioned.",
    ),
]


class NotStopped(RingfaustError):
    """No worker reports that the partition has stopped, or not at this record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPartition:
    """A partition, as the workers report it."""

    partition: str
    state: str = "unassigned"
    """serving, recovering, stopped, or unassigned."""
    worker: str = ""
    """Empty: none."""
    lag: int = 0
    """Records that are not read yet."""
    at: str = ""
    """The input record at which it has stopped: topic/partition/offset."""
    reason: str = ""
    remedy: str = ""
    since_ms: int = 0
    """When it stopped, in ms since 1970; 0: it has not."""


def listed(workers: Sequence[WorkerStatus], partitions: int, now_ms: int) -> list[ListedPartition]:
    """What the workers report about each partition."""
    found = {each: ListedPartition(partition=each) for each in map(str, range(partitions))}
    for each in sorted(workers, key=lambda each: each.time_ms):  # it has moved to who spoke last
        if each.is_stale(now_ms):
            continue
        for number in each.partitions:
            state = "recovering" if number in each.recovering else "serving"
            found[str(number)] = ListedPartition(
                partition=str(number), state=state, worker=each.worker, lag=each.lag.get(number, 0)
            )
        for it in each.stopped:
            found[it.partition] = ListedPartition(
                partition=it.partition, state="stopped", worker=each.worker, at=it.at,
                reason=it.reason, remedy=it.remedy, since_ms=it.since_ms,
            )  # fmt: skip
    return [*found.values()]


def _all(target: Target) -> list[ListedPartition]:
    now_ms = wall_ms()
    return with_status(target, lambda status: listed(status.workers(), status.partitions, now_ms))


def _one(target: Target, name: str) -> ListedPartition:
    for each in _all(target):
        if each.partition == name:
            return each
    raise NotStopped(f"no worker reports a partition {name}: see ringfaust partition ls")


def _stopped(target: Target, name: str) -> ListedPartition:
    found = _one(target, name)
    if found.state != "stopped":
        raise NotStopped(f"partition {name} has not stopped: it is {found.state}")
    return found


@partition.command("ls")
def list_partitions(*, target: Target, as_json: AsJson = False) -> None:
    """List partitions: which worker serves each, and which have stopped.

    Example: ringfaust partition ls
    """
    found = _all(target)
    if as_json:
        print_json(found)
        return
    rows = [
        (each.partition, each.state, each.worker, each.lag, each.at, each.reason) for each in found
    ]
    print_table(("partition", "state", "worker", "lag", "at", "reason"), rows, text_last=True)


@partition.command("show")
def show(*, target: Target, name: Number, as_json: AsJson = False) -> None:
    """Show one partition: if it has stopped, at which record, why, and what to do.

    Example: ringfaust partition show 2
    """
    found = _one(target, name)
    if as_json:
        print_json(found)
        return
    since = age_text(wall_ms() - found.since_ms) if found.since_ms else ""
    print_fields(
        [
            ("partition", found.partition), ("state", found.state), ("worker", found.worker),
            ("lag", found.lag), ("stopped for", since), ("at", found.at),
            ("reason", found.reason), ("remedy", found.remedy),
        ]
    )  # fmt: skip


@partition.command("retry")
def retry(*, target: Target, name: Number, yes: Yes = False) -> None:
    """Have a partition that has stopped try again, once its cause is corrected.

    Example: ringfaust partition retry 2
    """
    approve(target, yes=yes)
    _stopped(target, name)
    with_admin(target, lambda admin: admin.retry_partition(name, by=operator()))
    changed(target, f"partition {name} is running again")


@partition.command("skip")
def skip(
    *,
    target: Target,
    name: Number,
    at: Annotated[
        str,
        typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="The record at which it stopped."),
    ],
    yes: Yes = False,
) -> None:
    """Move the record at which a partition has stopped to the dead topic, and go on behind it.

    Example: ringfaust partition skip 2 orders/2/1041 --yes
    """
    found = _stopped(target, name)
    if found.at != at:
        raise NotStopped(f"partition {name} has stopped at {found.at or 'no record'}, not at {at}")
    confirm(f"This moves {at} to the dead topic, unprocessed.", target.where(), yes=yes)
    with_admin(target, lambda admin: admin.skip_record(name, at, by=operator()))
    changed(
        target,
        f"partition {name} is running again; {at} is in the dead topic with the reason skipped",
    )
