"""`ringfaust restore`: take state into use that was mirrored from another cluster (ADR 57)."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs, to start fast

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ringfaust.cli.operate import Target, Yes, confirm, print_table, say
from ringfaust.errors import RingfaustError

if TYPE_CHECKING:
    from ringfaust.config import WorkerConfig
    from ringfaust.config.queues import QueuesConfig
    from ringfaust.kafka.mirrored_state import StateEnd
    from ringfaust.worker.interfaces import Bounds


class CannotRestore(RingfaustError):
    """The state cannot be taken into use. Nothing was changed; the text says what to do."""


class BadBegin(RingfaustError):
    """A value of --at cannot be used. Nothing was changed; the text says what is valid."""


class _Input(NamedTuple):
    """A partition of an input topic."""

    topic: str
    number: int
    state: int
    """The partition whose state has its position."""
    is_direct: bool
    bounds: Bounds


class _Plan(NamedTuple):
    """What is to be written."""

    ends: Mapping[int, StateEnd]
    """By partition whose state was moved."""
    inputs: Sequence[_Input]
    begins: Mapping[tuple[str, int], int]


def restore(
    *,
    target: Target,
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC/PARTITION=OFFSET",
            help="Begin there, and not at the end of that partition. Repeatable.",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Let workers begin with state that was mirrored from another cluster. They must not run.

    Shows where each input begins: at its end, because the state contains what is before.

    Example: ringfaust restore --at orders/0=120400
    """
    import asyncio

    worker, queues = target.load()
    given = dict(map(_begin, at or ()))
    plan = asyncio.run(_look(worker, queues, given))
    if not plan.ends:
        say("nothing to restore: the state was written in this cluster, or there is none")
        return
    print_table(
        ("topic", "partition", "in the state", "first here", "end here", "begins at"),
        [
            (
                each.topic, each.number, _before(each, plan.ends), each.bounds.begin,
                each.bounds.end, plan.begins[each.topic, each.number],
            )
            for each in plan.inputs
        ],
    )  # fmt: skip
    for number, end in plan.ends.items():
        if end.torn:
            say(
                f"partition {number}: the mirror has ended within a transaction; the "
                f"{len(end.torn):,} rows that came of it are taken back"
            )
    what = "What is before these offsets will not be read again, even if the state lacks it."
    confirm(what, target.where(), yes=yes)
    asyncio.run(_write(worker, plan))
    say(f"restored partitions {', '.join(map(str, plan.ends))}: start the workers")


def _begin(text: str) -> tuple[tuple[str, int], int]:
    """Read a value of --at.

    Raises:
        BadBegin: it is none.
    """
    found = re.fullmatch(r"(.+)/(\d{1,10})=(\d{1,19})", text)
    if not found:
        raise BadBegin(f"--at {text}: write TOPIC/PARTITION=OFFSET, such as orders/0=120400")
    return (found[1], int(found[2])), int(found[3])


def _before(each: _Input, ends: Mapping[int, StateEnd]) -> str:
    position = ends[each.state].positions.get(each.topic) if each.is_direct else None
    return "" if position is None else str(position)


async def _look(
    worker: WorkerConfig, file: QueuesConfig, given: Mapping[tuple[str, int], int]
) -> _Plan:
    """Find out what is to be written.

    Raises:
        CannotRestore: workers run, or the mirror lacks something.
        BadBegin: a value of --at names no input, or an offset that is not there.
    """
    from ringfaust.config.applied import checked_configuration
    from ringfaust.kafka.mirrored_state import moved_states
    from ringfaust.protocol.records import Role

    await _refuse_running(worker)
    used, problems = await checked_configuration(worker, file)
    for each in problems:
        if each.what == "partitions" and each.severity == "error":
            raise CannotRestore(f"{each.text} Nothing was changed")
    changelog, numbers = worker.topic(Role.CHANGELOG), range(worker.partitions)
    ends, moved, _ = await moved_states(worker.client_options(), changelog, numbers)
    if not moved:
        return _Plan({}, (), {})
    inputs = [
        each for each in await _inputs(worker, used.queues, min(moved)) if each.state in moved
    ]
    _refuse_lacking(ends, moved)
    begins = {(each.topic, each.number): each.bounds.end for each in inputs}
    for where, offset in given.items():
        _check_begin(where, offset, inputs)
    return _Plan(moved, inputs, {**begins, **given})


async def _refuse_running(worker: WorkerConfig) -> None:
    from ringfaust.kafka.admin import running_workers

    if members := await running_workers(worker.brokers()):
        raise CannotRestore(
            f"{len(members)} workers of {worker.application} run, or were killed less than "
            f"{worker.session_timeout_ms / 1000:.0f} s ago. Nothing was changed. Stop them first"
        )


def _refuse_lacking(ends: Mapping[int, StateEnd], moved: Mapping[int, StateEnd]) -> None:
    """Raise `CannotRestore` if the changelog does not have the state of each partition."""
    for number, end in ends.items():
        if not end.positions:
            raise CannotRestore(
                f"the changelog has nothing of partition {number}, and state of others. Nothing "
                "was changed. Let the mirror copy all of it"
            )
    for number, end in moved.items():
        if end.torn and end.is_of_job:
            raise CannotRestore(
                f"partition {number}: a ring job has written its state last, so it is not known "
                "whether it is complete. Nothing was changed. Start a worker on the old cluster "
                "for a moment, stop it, and mirror the rest"
            )


async def _inputs(worker: WorkerConfig, queues: QueuesConfig, some: int) -> list[_Input]:
    """All inputs. `some`: a partition that keeps the positions of repartitioned topics."""
    from faust.types import TP

    from ringfaust.kafka.admin import existing_partitions
    from ringfaust.kafka.reader import committed_reader
    from ringfaust.kafka.topic_ids import topic_ids
    from ringfaust.protocol.records import Role
    from ringfaust.worker.partition.input_positions import read_bounds

    direct, repartitioned = queues.split_routes(worker.partitions)
    own = [worker.topic(Role.CONTROL), worker.topic(Role.HOP)]
    topics = [*own, *(route.topic for route in direct)]
    numbers = [(topic, number) for topic in topics for number in range(worker.partitions)]
    names = [route.topic for route in repartitioned]
    numbers += await existing_partitions(worker.brokers(), names)
    client = worker.client_options()
    async with committed_reader(client) as consumer:
        bounds = await read_bounds(consumer, partial(topic_ids, client), starmap(TP, numbers))
    return [
        _Input(
            tp.topic, tp.partition, tp.partition if tp.topic in topics else some,
            tp.topic in topics, found,
        )
        for tp, found in sorted(bounds.items())
    ]  # fmt: skip


def _check_begin(where: tuple[str, int], offset: int, inputs: Sequence[_Input]) -> None:
    topic, number = where
    for each in inputs:
        if (each.topic, each.number) == where:
            begin, end, _ = each.bounds
            if begin <= offset <= end:
                return
            raise BadBegin(
                f"--at {topic}/{number}={offset}: the partition has offsets {begin} to {end}"
            )
    raise BadBegin(f"--at {topic}/{number}={offset}: no input that was moved has this name")


async def _write(worker: WorkerConfig, plan: _Plan) -> None:
    from ringfaust.kafka.mirrored_state import begin_at
    from ringfaust.protocol.records import Role
    from ringfaust.protocol.routes import copied_key

    for number, end in plan.ends.items():
        positions, ids = {}, {}
        for each in plan.inputs:
            if each.state != number:
                continue
            at = plan.begins[each.topic, each.number]
            if each.is_direct:
                positions[each.topic], ids[each.topic] = at, each.bounds.topic_id
            else:
                key = copied_key(f"{each.topic}/{each.number}", each.bounds.topic_id)
                positions[key] = at
        await begin_at(
            worker.client_options(), worker.application, worker.topic(Role.CHANGELOG), number,
            end=end, positions=positions, ids=ids,
        )  # fmt: skip
