"""Apply a configuration (R128), or raise the feature level (R129), for all partitions or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from aiokafka.errors import KafkaError, ProducerFenced

from ringfaust.client.brokers import Writer, stop
from ringfaust.client.connection import Connection, encode
from ringfaust.client.errors import BadArgument, ClientError, NoAnswer, OutcomeUnknown, Refused
from ringfaust.client.inspected import QueueSummary, SettingSince
from ringfaust.protocol.document_checks import document_faults
from ringfaust.protocol.lifecycle import HELD_STATES
from ringfaust.protocol.names import apply_transactional_id
from ringfaust.protocol.records import OutgoingRecord, Role
from ringfaust.protocol.revisions import (
    Configuration,
    ConfigurationLog,
    RaisedLevel,
    level_row,
    revision_rows,
)
from ringfaust.protocol.route_changes import RouteChanges, feeds_of, hops_changed, moved_text
from ringfaust.protocol.stored_rows import Feeds
from ringfaust.times import wall_ms
from ringfaust.transactional.configuration_topic import OPTIONS, read_configurations
from ringfaust.transactional.writer import opened


class NotApplied(ClientError):
    """A configuration was not applied, to no partition. The text says why, and what to do."""


QueuesIn = Callable[[int, str], Awaitable[list[QueueSummary]]]
Request = Callable[[int, Mapping[str, Any]], Awaitable[dict[str, Any]]]


class Applied(NamedTuple):
    """A configuration that was applied."""

    revision: int
    partitions: tuple[int, ...]
    """Those that have taken it up."""
    waiting: tuple[int, ...]
    """Those that have not answered: they take it up when a worker serves them."""


class Raised(NamedTuple):
    """A feature level that was raised."""

    level: int
    partitions: tuple[int, ...]
    """Those that use it."""
    waiting: tuple[int, ...]
    """Those that have not answered: they take it up when a worker serves them."""


async def present_configurations(
    request: Request, partitions: Sequence[int]
) -> dict[int, Configuration]:
    """What each partition uses; `request` asks one.

    Raises:
        NotApplied: a worker does not know what it uses: it is of an earlier version.
        NoAnswer: a partition has no worker.
    """

    async def ask(partition: int) -> Configuration:
        body = await request(partition, {"type": "show_configuration"})
        answer: dict[str, Any] = body["answer"]
        if answer["document"] is None:
            raise NotApplied(
                f"partition {partition} is served by a worker of an earlier version: upgrade all "
                "workers, and apply again"
            )
        return Configuration(**answer)

    return dict(zip(partitions, await asyncio.gather(*map(ask, partitions)), strict=True))


async def configuration_log(connection: Connection) -> ConfigurationLog:
    """What was applied, and the feature level.

    Raises:
        NotApplied: the topic does not exist.
        NoAnswer: it could not be read within `timeout_ms`.
    """
    topic = connection.topic(Role.CONFIGURATION)
    consumer = connection.brokers.consumer(**OPTIONS)
    try:
        async with asyncio.timeout(connection.timeout_ms / 1000) as limit:
            found = await read_configurations(consumer, topic)
    except TimeoutError:
        if not limit.expired():
            raise
        raise NoAnswer(
            f"the brokers at {connection.servers} have not answered within "
            f"{connection.timeout_ms} ms; check that they run"
        ) from None
    finally:
        await stop(consumer)
    if found is None:
        raise NotApplied(f"there is no topic {topic}: `ringfaust topics create` creates it")
    return found


def settings_since(revisions: Sequence[Configuration], queue: str) -> dict[str, SettingSince]:
    """Since when a queue has the settings that the newest configuration gives it.

    What it had before the oldest of the revisions is left out.

    Raises:
        BadSetting: a revision is of a newer version.
    """
    if not revisions:
        return {}
    specs = [asdict(each.catalog().spec(queue, {})) for each in revisions]
    found = {}
    for name, value in specs[-1].items():
        first = len(specs) - 1
        while first and specs[first - 1][name] == value:
            first -= 1
        if first:
            came = revisions[first]
            found[name] = SettingSince(
                revision=came.revision, who=came.who, applied_ms=came.applied_ms
            )
    return found


async def apply(
    connection: Connection,
    document: Mapping[str, Any],
    *,
    who: str,
    text: str,
    after: int | None,
    is_stopped: bool,
    queues_in: QueuesIn,
    request: Request,
) -> Applied:
    """Write a configuration for all partitions, in one transaction; see `Admin.apply`.

    `queues_in` lists the queues of a partition that match a pattern, and `request` asks one.
    """
    numbers = sorted(connection.partitions)
    used = {} if is_stopped else await present_configurations(request, numbers)
    count = len(numbers)
    mine = Configuration(1, document, who, text)
    encode(_command(mine))  # refuses what no worker takes, before anything is asked
    ours = {connection.topic(role) for role in Role}
    if faults := document_faults(document, ours, count):
        raise BadArgument("apply: " + "; ".join(faults))
    now = feeds_of(document, count)
    before = {number: feeds_of(each.document, count) for number, each in used.items()}
    await asyncio.gather(*(_check_routes(*each, now, queues_in) for each in before.items()))
    if used:
        await _check_topics(connection, before.values(), now)
    writer = connection.brokers.writer(apply_transactional_id(connection.application))
    async with opened(writer):  # from here on nobody else can finish
        known = (await configuration_log(connection)).revisions
        if is_stopped and not known:
            raise NotApplied(
                "no worker runs, and nothing was applied yet: start the workers with this "
                "queues.yaml, which is in effect until the first apply"
            )
        newest = max([each.revision for each in (*known, *used.values())], default=0)
        if after is not None and newest != after:
            raise NotApplied(
                f"revision {newest} is newer than revision {after}, on which this change is "
                "based: run `ringfaust diff`, and apply again"
            )
        mine = mine._replace(revision=newest + 1, applied_ms=wall_ms())
        if used:
            _check_hops([feeds_of(each.document, count) for each in known], now)
        first = [] if known else [used[min(used)]._replace(revision=0)]
        rows = revision_rows(connection.topic(Role.CONFIGURATION), [*first, mine])
        try:
            done = await _write(connection, writer, rows, _command(mine), waits=not is_stopped)
        except Refused as error:
            latest = max(used.values(), key=lambda each: each.revision)
            await _take_back(connection, writer, mine, latest)
            raise NotApplied(
                f"a worker refuses revision {mine.revision}: {error}. Revision {mine.revision + 1} "
                "has what was before. If workers of several versions run, upgrade them first"
            ) from error
        return Applied(mine.revision, *done)


async def _take_back(
    connection: Connection, writer: Writer, refused: Configuration, before: Configuration
) -> None:
    """Apply what was before again: a worker that starts could not use what others refuse."""
    again = refused._replace(
        revision=refused.revision + 1, document=before.document, applied_ms=wall_ms(),
        text=f"takes back revision {refused.revision}, which a worker refused",
    )  # fmt: skip
    rows = revision_rows(connection.topic(Role.CONFIGURATION), [again])
    await _write(connection, writer, rows, _command(again), waits=True)


def _command(asked: Configuration) -> dict[str, Any]:
    """What puts a configuration into effect."""
    return {
        "type": "apply", "revision": asked.revision, "configuration": asked.document,
        "who": asked.who, "text": asked.text,
    }  # fmt: skip


async def raise_level(connection: Connection, level: int, who: str) -> Raised:
    """Let all partitions use a feature level; see `Admin.raise_level`."""
    async with opened(
        connection.brokers.writer(apply_transactional_id(connection.application))
    ) as writer:
        command = {"type": "raise_level", "level": level, "who": who}
        done = await _write(connection, writer, [], command, waits=True)
        # Not before: nobody could start any more if no worker supported it.
        if (await configuration_log(connection)).level.level < level:
            mine = RaisedLevel(level, who, wall_ms())
            row = level_row(connection.topic(Role.CONFIGURATION), mine)
            await _commit(writer, [row], "the feature level")
        return Raised(level, *done)


def _check_hops(before: Iterable[Feeds], now: Feeds) -> None:
    """Refuse to begin or end the hop of a topic (R128): it has another reader then.

    Raises:
        NotApplied: the routes would.
    """
    if changed := hops_changed(before, now):
        raise NotApplied(
            f"records of {', '.join(changed)} would take the hop from now on, or take it no more, "
            "which workers change only when they start. Nothing was changed. Stop all workers, "
            "apply again, and start them"
        )


async def _check_routes(partition: int, before: Feeds, now: Feeds, queues_in: QueuesIn) -> None:
    """Refuse routes that a running worker cannot take up in a partition (R113, R128).

    Raises:
        NotApplied: they would move queues with messages; or they begin or end the hop of a topic,
            which has another reader then.
    """
    _check_hops([before], now)
    changes = RouteChanges(before, now)
    if not changes.has_changed:
        return
    held = {
        each.queue: sum(each.counts[state] for state in HELD_STATES)
        for each in await queues_in(partition, "#")
    }

    def begins_with(text: str) -> list[tuple[str, int]]:
        return [(name, messages) for name, messages in held.items() if name.startswith(text)]

    moved = [queue for queue in changes.moved(begins_with, partition) if queue.messages]
    if moved:
        raise NotApplied(
            f"the records of these queues of partition {partition} would come to another one: "
            f"{moved_text(moved)}. Nothing was changed. Consume, move or purge their messages, and "
            "apply again"
        )


async def _check_topics(connection: Connection, before: Iterable[Feeds], now: Feeds) -> None:
    """Refuse new topics that no worker could read: all would stop at them (R113).

    Workers wait for a topic that does not exist.

    Raises:
        NotApplied: one is read without the hop, and has another number of partitions.
    """
    known = {each.topic for feeds in before for each in feeds.routes}
    new = {each.topic for each in now.routes if not each.is_repartitioned} - known
    for topic in sorted(new & await connection.topics.all() if new else ()):
        count = len(await connection.producer.partitions_for(topic))
        if count != now.partitions:
            raise NotApplied(
                f"topic {topic} has {count} partitions, and this application "
                f"{now.partitions}. It is read without the hop, so the numbers must be equal. "
                "Nothing was changed. Give the topic as many, or its route `hop: always`"
            )


async def _write(
    connection: Connection,
    writer: Writer,
    rows: list[OutgoingRecord],
    command: Mapping[str, Any],
    *,
    waits: bool,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Write rows and a command for each partition at once, and wait until these have taken it up.

    Returns the partitions that have, and those that have not answered.
    """
    rows, expected, keys = [*rows], {}, []
    for number in sorted(connection.partitions):
        key, expected[number] = connection.expect_reply()
        keys.append(key)
        value = encode({**command, "reply": key})
        rows.append(OutgoingRecord(connection.topic(Role.CONTROL), value, partition=number))
    await _commit(writer, rows, command["type"])
    answers = await asyncio.gather(
        *map(connection.await_reply, expected.values() if waits else ()), return_exceptions=True
    )
    for key in keys:
        connection.drop_reply(key)
    if not waits:
        return (), tuple(expected)
    done, waiting = [], []
    for number, answer in zip(expected, answers, strict=True):
        if isinstance(answer, NoAnswer):
            waiting.append(number)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            done.append(number)
    return tuple(done), tuple(waiting)


async def _commit(writer: Writer, rows: list[OutgoingRecord], what: str) -> None:
    """Write rows at once; `what`: what they are, for the error."""
    try:
        await writer.commit(lambda: writer.send(rows))
    except ProducerFenced:
        raise NotApplied(
            "another `ringfaust apply` or `upgrade finish` began at the same moment. Nothing was "
            "changed: see `ringfaust history`, and try again"
        ) from None
    except KafkaError as error:
        if writer.may_be_committed:
            raise OutcomeUnknown(
                f"it is not known whether {what} was written: see `ringfaust history` "
                "and `ringfaust upgrade status`"
            ) from error
        raise
