"""Apply a configuration (R128), or raise the feature level (R129), for all partitions or none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokafka.errors import KafkaError, ProducerFenced

from ringfaust.client.brokers import Writer, stop
from ringfaust.client.connection import Connection, encode
from ringfaust.client.errors import ClientError, NoAnswer, OutcomeUnknown
from ringfaust.protocol.names import apply_transactional_id
from ringfaust.protocol.records import OutgoingRecord, Role
from ringfaust.protocol.revisions import (
    Configuration,
    ConfigurationLog,
    RaisedLevel,
    level_row,
    revision_rows,
)
from ringfaust.transactional.configuration_topic import OPTIONS, read_configurations


class NotApplied(ClientError):
    """A configuration was not applied, to no partition. The text says why, and what to do."""


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


async def present_configurations(connection: Connection) -> dict[int, Configuration]:
    """What each partition uses.

    Raises:
        NotApplied: a worker does not know what it uses: it is of an earlier version.
        NoAnswer: a partition has no worker.
    """

    async def ask(partition: int) -> Configuration:
        body = await connection.request(partition, {"type": "show_configuration"})
        answer: dict[str, Any] = body["answer"]
        if answer["document"] is None:
            raise NotApplied(
                f"partition {partition} is served by a worker of an earlier version: upgrade all "
                "workers, and apply again"
            )
        return Configuration(**answer)

    numbers = sorted(connection.partitions)
    return dict(zip(numbers, await asyncio.gather(*map(ask, numbers)), strict=True))


async def configuration_log(connection: Connection) -> ConfigurationLog:
    """What was applied, and the feature level.

    Raises:
        NotApplied: the topic does not exist.
    """
    topic = connection.topic(Role.CONFIGURATION)
    consumer = connection.brokers.consumer(**OPTIONS)
    try:
        found = await read_configurations(consumer, topic)
    finally:
        await stop(consumer)
    if found is None:
        raise NotApplied(f"there is no topic {topic}: `ringfaust topics create` creates it")
    return found


async def apply(
    connection: Connection,
    document: Mapping[str, Any],
    *,
    who: str,
    text: str,
    after: int | None,
    is_stopped: bool,
) -> Applied:
    """Write a configuration for all partitions, in one transaction; see `Admin.apply`."""
    used = {} if is_stopped else await present_configurations(connection)
    _refuse_routes(used, document)
    writer = connection.brokers.writer(apply_transactional_id(connection.application))
    try:
        await writer.start()  # from here on nobody else can finish
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
        mine = Configuration(newest + 1, document, who, text, time.time_ns() // 1_000_000)
        first = [] if known else [used[min(used)]._replace(revision=0)]
        command = {
            "type": "apply", "revision": mine.revision, "configuration": document,
            "who": who, "text": text,
        }  # fmt: skip
        rows = revision_rows(connection.topic(Role.CONFIGURATION), [*first, mine])
        done = await _write(connection, writer, rows, command, waits=not is_stopped)
        return Applied(mine.revision, *done)
    finally:
        await writer.stop()


async def raise_level(connection: Connection, level: int, who: str) -> Raised:
    """Let all partitions use a feature level; see `Admin.raise_level`."""
    writer = connection.brokers.writer(apply_transactional_id(connection.application))
    try:
        await writer.start()
        command = {"type": "raise_level", "level": level, "who": who}
        done = await _write(connection, writer, [], command, waits=True)
        # Not before: nobody could start any more if no worker supported it.
        if (await configuration_log(connection)).level.level < level:
            mine = RaisedLevel(level, who, time.time_ns() // 1_000_000)
            row = level_row(connection.topic(Role.CONFIGURATION), mine)
            await _commit(writer, [row], "the feature level")
        return Raised(level, *done)
    finally:
        await writer.stop()


def _refuse_routes(used: Mapping[int, Configuration], document: Mapping[str, Any]) -> None:
    """Refuse a change of the routes while workers run: they read routes when they start."""
    wanted = _by_topic(document)
    for each in used.values():
        before = _by_topic(each.document)
        changed = sorted(
            topic for topic in {*wanted, *before} if wanted.get(topic) != before.get(topic)
        )
        if changed:
            raise NotApplied(
                f"the routes of {', '.join(changed)} differ, and workers read routes only when "
                "they start. Nothing was changed. Stop all workers, apply again, and start them"
            )


def _by_topic(document: Mapping[str, Any]) -> dict[str, Any]:
    return {route["topic"]: route for route in document.get("routes", ())}


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
