"""`ringfaust queue …`: look at queues and change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ringfaust.cli.operate import (
    AsJson,
    Pattern,
    QueueName,
    Target,
    Yes,
    approve,
    changed,
    confirm,
    print_fields,
    print_json,
    print_list,
    print_table,
    say,
    with_admin,
)
from ringfaust.cli.parts import group
from ringfaust.core.model import HELD_STATES, TOTALS
from ringfaust.errors import RingfaustError, suggestion
from ringfaust.times import age_text, time_text, wall_ms

if TYPE_CHECKING:
    from ringfaust.client import Admin
    from ringfaust.client.inspected import QueueDetails, QueueSummary, SettingSince

queue = group("Look at queues and change them.")


_LISTED_TOTALS = ("added", "evicted", "dead")
SPLIT_REMEDY = (
    "producers spread records with one key. Let all use Kafka's default partitioner, or set "
    "hop: always on the route"
)


What = Annotated[
    Literal["dispatch", "pulling"],
    typer.Option(help="dispatch: hand out nothing. pulling: read no new messages."),
]


class BadAssignment(RingfaustError):
    """An argument is not of the form NAME=VALUE, or names no setting. The text says which is."""


@queue.command("ls")
def list_queues(*, target: Target, pattern: Pattern = "#", as_json: AsJson = False) -> None:
    """List queues with what they hold.

    Example: ringfaust queue ls 'departures.#'
    """
    found = with_admin(target, lambda admin: admin.queues(pattern))
    print_list(
        found,
        ("queue", "partition", "ring size", *HELD_STATES, *_LISTED_TOTALS, "consumers", "paused"),
        _row, as_json=as_json, nothing=f"no queue matches {pattern}",
    )  # fmt: skip
    if not as_json:
        warn_of_homes([(each.queue, each.partition) for each in found])


def warn_of_homes(found: Sequence[tuple[str, int]]) -> None:
    """Tell of queues that several partitions have (R113). `found`: queues with partitions."""
    for name, homes in groupby(found, key=itemgetter(0)):
        numbers = [str(partition) for _, partition in sorted(homes)]
        if len(numbers) > 1:
            say(f"{name} is in partitions {', '.join(numbers)}: {SPLIT_REMEDY}")


def _row(summary: QueueSummary) -> list[object]:
    counts = summary.counts
    size = "no limit" if summary.ring_size == -1 else summary.ring_size
    return [
        summary.queue, summary.partition, size,
        *(counts[name] for name in (*HELD_STATES, *_LISTED_TOTALS)),
        summary.consumers, ", ".join(summary.paused),
    ]  # fmt: skip


@queue.command("show")
def show(*, target: Target, name: QueueName, as_json: AsJson = False) -> None:
    """Show a queue: what it holds, its counts, settings and consumers.

    Example: ringfaust queue show orders
    """

    async def look(admin: Admin) -> tuple[Sequence[QueueDetails], Mapping[str, SettingSince]]:
        return await admin.homes(name), await admin.settings_since(name)

    homes, since = with_admin(target, look)
    if as_json:
        print_json(asdict(homes[0]) | {"others": homes[1:], "since": since})
        return
    for number, found in enumerate(homes):
        if number:
            say("")
        _print_queue(found, since)
    if len(homes) > 1:
        say("")
        warn_of_homes([(each.queue, each.partition) for each in homes])


def _print_queue(found: QueueDetails, since: Mapping[str, SettingSince]) -> None:
    counts = found.counts
    size = found.settings["ring_size"]
    now_ms = wall_ms()
    print_fields([
        ("queue", found.queue),
        ("partition", found.partition),
        ("ring size", "no limit" if size == -1 else size),
        *((name, counts[name]) for name in HELD_STATES),
        ("bytes", found.size_bytes),
        ("oldest ready", age_text(now_ms - found.oldest_ms) if found.oldest_ms else "-"),
        ("paused", ", ".join(found.paused) or "no"),
        ("reads new messages", found.pulled),
    ])  # fmt: skip
    say("")
    print_fields([(name, counts[name]) for name in TOTALS if counts[name] or name == "added"])
    if rows := _changed(found, since):
        say("")
        print_table(("setting", "value", "from"), rows)
    if found.consumers:
        say("")
        print_table(
            ("consumer", "unsettled", "credit", "priority", "mode", "silent for"),
            [
                (c.consumer, c.unsettled, c.credit, c.priority, c.ack_mode, age_text(c.silent_ms))
                for c in found.consumers
            ],
        )


def _changed(found: QueueDetails, since: Mapping[str, SettingSince]) -> list[tuple[object, ...]]:
    """The settings that differ from the defaults or were set live: name, value, where from."""
    from ringfaust.core.settings import QueueSpec, written_name  # noqa: PLC0415 - slow to import

    defaults = {each.name: each.default for each in fields(QueueSpec)}
    return [
        (written_name(name), str(value), _origin(name, found, since.get(name)))
        for name, value in found.settings.items()
        if name in found.own or value != defaults.get(name) or name in since
    ]


def _origin(name: str, found: QueueDetails, since: SettingSince | None) -> str:
    if name in found.own:
        at_ms = found.own_since_ms.get(name)
        return f"set live at {time_text(at_ms)}" if at_ms else "set live"
    if since is None:
        return "configuration"
    by = f" by {since.who}" if since.who else ""
    return f"revision {since.revision}, applied{by} at {time_text(since.applied_ms)}"


@queue.command("watch")
def watch(
    *,
    target: Target,
    pattern: Pattern = "#",
    every_s: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    times: Annotated[int, typer.Option(min=0, help="Stop after so many looks; 0: never.")] = 0,
) -> None:
    """Show queues again and again, with rates, until Ctrl-C.

    Example: ringfaust queue watch 'orders.*' --every-s 1
    """
    from ringfaust.cli.watch import run  # noqa: PLC0415 - slow to import

    run(target, pattern, every_s, times)


@queue.command("set")
def set_(
    *,
    target: Target,
    name: QueueName,
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE…", help="Settings, as in queues.yaml.")
    ],
    yes: Yes = False,
) -> None:
    """Change settings of a queue. They take precedence over queues.yaml.

    Example: ringfaust queue set orders ring_size=500 shrink=eager
    """
    wanted = dict(map(_assignment, settings))
    approve(target, yes=yes)
    with_admin(target, lambda admin: admin.configure(name, wanted))
    changed(target, f"{name}: set {', '.join(f'{key} = {value}' for key, value in wanted.items())}")


def _assignment(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE. The worker checks whether the value is valid."""
    from ringfaust.config.documents import setting_value  # noqa: PLC0415 - slow to import

    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadAssignment(f"{text!r}: write settings as NAME=VALUE, such as ring_size=500")
    _check_setting(name)
    return name, setting_value(value)


@queue.command("reset")
def reset(
    *,
    target: Target,
    name: QueueName,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[SETTING…]", help="Default: all set live.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Take back settings that were set live: the configuration decides again.

    Example: ringfaust queue reset orders ring_size
    """
    from ringfaust.core.settings import (  # noqa: PLC0415 - slow to import
        STORED_NAMES,
        written_name,
    )

    for each in settings or ():
        _check_setting(each)
    approve(target, yes=yes)

    async def act(admin: Admin) -> list[str]:
        own = {each for home in await admin.homes(name) for each in home.own}
        wanted = {STORED_NAMES.get(each, each) for each in settings or own} & own
        if wanted:
            await admin.configure(name, dict.fromkeys(wanted))
        return sorted(wanted)

    if taken_back := with_admin(target, act):
        changed(target, f"{name}: took back {', '.join(map(written_name, taken_back))}")
    else:
        say(f"{name}: nothing to take back: that was not set live")


def _check_setting(name: str) -> None:
    from ringfaust.core.settings import (  # noqa: PLC0415 - slow to import
        FIELD_NAMES,
        STORED_NAMES,
        WRITTEN_NAMES,
    )

    if STORED_NAMES.get(name, name) not in FIELD_NAMES:
        raise BadAssignment(f"{name!r} is not a setting; {suggestion(name, WRITTEN_NAMES)}")


@queue.command("pause")
def pause(*, target: Target, name: QueueName, what: What = "dispatch", yes: Yes = False) -> None:
    """Stop handing out a queue's messages, or reading new ones.

    Example: ringfaust queue pause orders
    """
    approve(target, yes=yes)
    with_admin(target, lambda admin: admin.pause(name, what))
    changed(target, f"{name}: {what} is paused")


@queue.command("resume")
def resume(*, target: Target, name: QueueName, what: What = "dispatch", yes: Yes = False) -> None:
    """Undo `pause`.

    Example: ringfaust queue resume orders
    """
    approve(target, yes=yes)
    with_admin(target, lambda admin: admin.resume(name, what))
    changed(target, f"{name}: {what} is resumed")


@queue.command("purge")
def purge(*, target: Target, name: QueueName, yes: Yes = False) -> None:
    """Evict all ready messages. They go to the evicted topic.

    Example: ringfaust queue purge orders --yes
    """

    async def act(admin: Admin) -> None:
        ready = sum(each.counts["ready"] for each in await admin.homes(name))
        confirm(f"This evicts the {ready:,} ready messages of {name}.", target.where(), yes=yes)
        await admin.purge(name)

    with_admin(target, act)
    changed(target, f"{name}: purged")


@queue.command("move")
def move(
    *,
    target: Target,
    name: QueueName,
    to: Annotated[str, typer.Argument(metavar="TO", help="Queue to move the messages to.")],
    most: Annotated[
        int, typer.Option("--most", min=1, help="Most messages to move, oldest first.")
    ] = 1_000,
    yes: Yes = False,
) -> None:
    """Move ready messages to another queue of the same partition.

    Example: ringfaust queue move orders orders-parked --most 50 --yes
    """
    from rich.progress import Progress  # noqa: PLC0415 - slow to import

    from ringfaust.terminal import Terminal  # noqa: PLC0415 - slow to import

    confirm(f"This moves up to {most:,} ready messages of {name} to {to}.", target.where(), yes=yes)

    async def act(admin: Admin) -> int:
        moved = 0
        with Progress(console=Terminal(stderr=True), transient=True) as progress:
            moving = progress.add_task("moving", total=most)
            async for moved in admin.move_oldest(name, to, most):
                progress.update(moving, completed=moved)
        return moved

    moved = with_admin(target, act)
    changed(target, f"{name}: moved {moved:,} messages to {to}")


@queue.command("create")
def create(
    *,
    target: Target,
    name: QueueName,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE…]", help="As in queues.yaml.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Create a queue that queues.yaml does not declare.

    Example: ringfaust queue create audit ring_size=500
    """
    wanted = dict(map(_assignment, settings or ()))
    approve(target, yes=yes)
    with_admin(target, lambda admin: admin.create_queue(name, wanted))
    changed(target, f"{name}: created")


@queue.command("delete")
def delete(*, target: Target, name: QueueName, yes: Yes = False) -> None:
    """Delete a queue: evict what is ready, remove what is scheduled.

    Example: ringfaust queue delete audit --yes
    """

    async def act(admin: Admin) -> None:
        held = sum(each.counts["messages"] for each in await admin.homes(name))
        confirm(
            f"This deletes {name} and evicts or removes {held:,} messages.", target.where(), yes=yes
        )
        await admin.delete_queue(name)

    with_admin(target, act)
    changed(target, f"{name}: deleted")
