"""What a ring held at a moment: the same answer as the worker's to `list`, and its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ringfaust.core.model import Counts, due_position, plain_position
from ringfaust.errors import RingfaustError
from ringfaust.spark.lines import is_refusal
from ringfaust.spark.rewind.messages import GONE, HELD, number_lives, trace_messages
from ringfaust.spark.rewind.moment import AtStep, Settled, until


class UnknownQueue(RingfaustError):
    """No event up to that moment names the queue."""


class HistoryCut(RingfaustError):
    """The events do not go back to the queue's first message, so nothing is certain.

    What to do: read the lake (`--lake`), which keeps what the topic's retention removes.
    """


@dataclass(frozen=True, slots=True)
class Held:
    """One message that was there."""

    id: str
    sequence: int
    priority: int
    enqueued_ms: int
    source: str
    handovers: int
    consumer: str = ""
    """Who held it then; empty if nobody did."""
    delivery: int = 0
    due_ms: int = 0
    """When it was to be due; 0 if it was not scheduled."""


@dataclass(frozen=True, slots=True)
class Contents:
    """One ring at one moment, whole."""

    queue: str
    partition: int
    moment: Settled
    ready: Sequence[Held]
    """In delivery order (R14)."""
    delivering: Sequence[Held]
    """By consumer, and in the order handed over."""
    scheduled: Sequence[Held]
    """By (due time, sequence)."""
    counts: Mapping[str, int]
    """As of R100."""

    def answer(self, limit: int | None = None) -> dict[str, Any]:
        """What the worker answers to `list`: the ids of the first `limit` of each state.

        But not whether the queue was `pulled`.
        """
        delivering: dict[str, list[str]] = {}
        by_number = sorted(self.delivering, key=lambda held: held.delivery)
        for held in islice(by_number, limit):
            delivering.setdefault(held.consumer, []).append(held.id)
        return {
            "ready": [held.id for held in islice(self.ready, limit)],
            "delivering": delivering,
            "scheduled": [held.id for held in islice(self.scheduled, limit)],
            "counts": dict(self.counts),
        }

    def digest(self) -> str:
        """See `digest_answer`."""
        return digest_answer(self.answer())


def digest_answer(answer: Mapping[str, Any]) -> str:
    """SHA-256 of an answer to `list` that was not cut: ids by state, in order, and the counts.

    Two states with one digest are equal: in what is ready and in its order, in who holds what, in
    what is scheduled and in its order, and in the accounts.
    """
    digest = hashlib.sha256()
    for part in _parts(answer):
        digest.update(json.dumps(part, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def _parts(answer: Mapping[str, Any]) -> Iterator[list[Any]]:
    yield from (["ready", message] for message in answer["ready"])
    for consumer, held in sorted(answer["delivering"].items()):
        yield from (["delivering", consumer, message] for message in held)
    yield from (["scheduled", message] for message in answer["scheduled"])
    yield ["counts", dict(answer["counts"])]


def read_contents(lines: DataFrame, asked: Sequence[tuple[str, Settled]]) -> list[list[Contents]]:
    """What rings held, each in each partition that has a queue of that name.

    One Spark job for all. What the rings held comes to the driver, what has left them does not.

    Args:
        lines: as of `read_lines`.
        asked: names of queues, and moments of `settle`.

    Raises:
        UnknownQueue: no event up to then names the queue.
        HistoryCut: its first messages are not in the lines any more.
    """
    held = F.struct(
        "sequence", "came_due_ms", "birth.id", "birth.priority", "birth.enqueued_ms",
        "birth.source", "handovers", "now.state", "now.consumer", "now.delivery", "now.due_ms",
    )  # fmt: skip
    own = _ask(lines, asked)
    refused = _refused(own)
    rows = (
        trace_messages(own, now=F.lit(True))
        .filter("life = lives")
        .groupBy("ask", "partition", F.col("now.state").alias("state"))
        .agg(
            F.count("*").alias("messages"),
            F.count("birth").alias("births"),
            F.max("sequence").alias("last_sequence"),
            F.collect_list(F.when(F.col("now.state").isin(*HELD), held)).alias("held"),
        )
        .collect()
    )
    by_ask: dict[int, dict[int, list[Row]]] = {number: {} for number in range(len(asked))}
    for row in rows:
        by_ask[row["ask"]].setdefault(row["partition"], []).append(row)
    return [
        [_contents(*asked[number], partition, by_partition[partition],
                   refused.get((number, partition), 0))
         for partition in sorted(by_partition)]
        or _without_messages(lines, *asked[number])
        for number, by_partition in by_ask.items()
    ]  # fmt: skip


def _ask(lines: DataFrame, asked: Sequence[tuple[str, Settled]]) -> DataFrame:
    """Each line once for each question that it belongs to, with the question's number as `ask`."""
    rows = [
        (number, queue, at.partition, at.step, None)
        if isinstance(at, AtStep)
        else (number, queue, None, None, at.time_ms)
        for number, (queue, at) in enumerate(asked)
    ]
    asks = lines.sparkSession.createDataFrame(
        rows, "ask int, queue string, in_partition int, to_step long, to_ms long"
    )
    wanted = lines.filter(F.col("queue").isin(*{queue for queue, _ in asked}))
    if len(asked) == 1:  # so that files and row groups can be passed over
        wanted = wanted.filter(until(asked[0][1]))
    return (
        wanted.join(F.broadcast(asks), "queue")
        .filter(F.expr("in_partition is null or in_partition = partition"))
        .filter(F.expr("to_step is null or step <= to_step"))
        .filter(F.expr("to_ms is null or time_ms <= to_ms"))
    )


def _without_messages(lines: DataFrame, queue: str, moment: Settled) -> list[Contents]:
    """It has no message in its present life, if it was ever there."""
    own = lines.filter((F.col("queue") == queue) & until(moment))
    partitions = [row["partition"] for row in own.select("partition").distinct().collect()]
    if not partitions:
        raise UnknownQueue(f"no event up to {moment} names a queue {queue!r}")
    counts = Counts().as_dict()
    return [Contents(queue, number, moment, (), (), (), counts) for number in sorted(partitions)]


def _refused(own: DataFrame) -> dict[tuple[int, int], int]:
    """How many sends a queue did not take in its present life (R60), by question and partition."""
    told = number_lives(own).filter(is_refusal() & (F.col("life") == F.col("lives")))
    told = told.select("ask", "partition", "step", "raw").distinct()
    return {(row[0], row[1]): row[2] for row in told.groupBy("ask", "partition").count().collect()}


def _contents(
    queue: str, moment: Settled, partition: int, states: Sequence[Row], refused: int
) -> Contents:
    total = sum(row["messages"] for row in states)
    last = max(row["last_sequence"] for row in states)
    if total != last or total != sum(row["births"] for row in states):
        raise HistoryCut(
            f"queue {queue!r}, partition {partition}: the events tell how {total} of its {last} "
            "messages began; the first are gone from the topic (retention): use --lake, if a lake "
            "has kept them"
        )
    by_state = {row["state"]: row for row in states}
    counts = {name: 0 for name in Counts().as_dict()} | {"added": total, "refused": refused}
    counts |= {state: by_state[state]["messages"] for state in (*HELD, *GONE) if state in by_state}
    counts["messages"] = sum(counts[state] for state in HELD)
    held = {state: by_state[state]["held"] if state in by_state else [] for state in HELD}
    return Contents(
        queue,
        partition,
        moment,
        tuple(map(_held, sorted(held["ready"], key=_delivery_order))),
        tuple(map(_held, sorted(held["delivering"], key=lambda m: (m["consumer"], m["delivery"])))),
        tuple(map(_held, sorted(held["scheduled"], key=lambda m: (m["due_ms"], m["sequence"])))),
        counts,
    )


def _delivery_order(message: Row) -> tuple[int, int]:
    """R14: by priority, then position (§1)."""
    due_ms, sequence = message["came_due_ms"], message["sequence"]
    position = plain_position(sequence) if due_ms is None else due_position(due_ms, sequence)
    return -message["priority"], position


def _held(message: Row) -> Held:
    state = message["state"]
    return Held(
        message["id"], message["sequence"], message["priority"], message["enqueued_ms"],
        message["source"], message["handovers"] or 0,
        message["consumer"] if state == "delivering" else "",
        message["delivery"] if state == "delivering" else 0,
        message["due_ms"] if state == "scheduled" else 0,
    )  # fmt: skip
