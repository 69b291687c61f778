"""The contents of a ring at a moment: the worker's answer to `list`, and its digest."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ringfaust.core.model import COUNTS, HELD_STATES, due_position, plain_position
from ringfaust.errors import RingfaustError
from ringfaust.protocol.lifecycle import ENDED, ENTRY_EVENTS, EXIT_EVENTS
from ringfaust.spark.lines import REFUSAL, STATE_AFTER, number_generations
from ringfaust.spark.rewind.moment import AtStep, Requests, ResolvedMoment, until
from ringfaust.spark.rewind.opening import BEGINNING, Opening

QUEUE = ("request", "partition", "queue")
"""What tells the queues of several requests apart."""
_MESSAGE = (*QUEUE, "generation", "sequence")


class UnknownQueue(RingfaustError):
    """No event up to the moment names the queue."""


class TruncatedHistory(RingfaustError):
    """The events do not go back to the queue's first message, so the contents are unknown.

    The lake (`--lake`) keeps the events that the topic's retention removes.
    """


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message that the ring held."""

    id: str
    sequence: int
    priority: int
    enqueued_ms: int
    source: str
    handovers: int
    consumer: str = ""
    """The consumer that it was delivered to; empty if it was not delivering."""
    delivery: int = 0
    """Number of that delivery; 0 if it was not delivering."""
    due_ms: int = 0
    """When it was due; 0 if it was not scheduled."""


@dataclass(frozen=True, slots=True)
class Contents:
    """The complete contents of a ring at a moment."""

    queue: str
    partition: int
    moment: ResolvedMoment
    held: Mapping[str, Sequence[HeldMessage]]
    """By state: `ready` in delivery order (R14), `delivering` by consumer, then delivery, and
    `scheduled` by due time, then sequence."""
    counts: Mapping[str, int]
    """The counts of R100."""

    def answer(self) -> dict[str, Any]:
        """The worker's answer to `list`, without `pulled`."""
        delivering: dict[str, list[str]] = {}
        for message in self.held["delivering"]:
            delivering.setdefault(message.consumer, []).append(message.id)
        return {
            "ready": [message.id for message in self.held["ready"]],
            "delivering": delivering,
            "scheduled": [message.id for message in self.held["scheduled"]],
            "counts": dict(self.counts),
        }

    def digest(self) -> str:
        """See `digest_answer`."""
        return digest_answer(self.answer())


def digest_answer(answer: Mapping[str, Any]) -> str:
    """SHA-256 of a complete answer to `list`: ids by state, in order, and the counts.

    Two states with the same digest have the same ready and scheduled messages in the same order,
    the same deliveries and the same counts.
    """
    parts: list[list[Any]] = [["ready", message] for message in answer["ready"]]
    for consumer, held in sorted(answer["delivering"].items()):
        parts += (["delivering", consumer, message] for message in held)
    parts += (["scheduled", message] for message in answer["scheduled"])
    parts.append(["counts", dict(answer["counts"])])
    digest = hashlib.sha256()
    for part in parts:
        digest.update(json.dumps(part, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def read_contents(
    lines: DataFrame, requests: Requests, opening: Opening = BEGINNING
) -> list[list[Contents]]:
    """The contents of rings, one for each partition that has a queue of the name.

    One Spark job answers all requests. Only messages that the rings held come to the driver.

    The lines begin at the opening.

    Raises:
        UnknownQueue: no event up to the moment names the queue.
        TruncatedHistory: the lines do not contain the queue's first messages.
    """
    own = _lines_by_request(lines, requests)
    states, about = _states(own, opening), _about_queues(own)
    found = []
    for number, (queue, moment) in enumerate(requests):
        own_states, own_about = states[number], about[number]
        before = {
            partition: counts
            for partition, counts in opening.counts_of(queue, moment).items()
            if partition not in own_about or not own_about[partition]["deletions"]
        }
        # A queue exists without messages too.
        used = own_states.keys() | {n for n, counts in before.items() if counts["last_sequence"]}
        partitions = used or before.keys() | own_about.keys()
        if not partitions:
            raise UnknownQueue(f"no event up to {moment} names a queue {queue!r}")
        for partition, row in own_about.items():
            counts = before.get(partition, {})
            before[partition] = {**counts, "refused": counts.get("refused", 0) + row["refused"]}
        found.append([
            _contents(queue, moment, n, own_states.get(n, ()), before[n])
            for n in sorted(partitions)
        ])  # fmt: skip
    return found


def _states(own: DataFrame, opening: Opening) -> defaultdict[int, dict[int, list[Row]]]:
    """By request and partition, a row for each state: how many messages, and those that are held.

    Messages that had ended at the opening do not count again.
    """
    is_held = F.col("now.state").isin(*HELD_STATES)
    held = F.struct(
        "sequence", "came_due_ms", "entry.id", "entry.priority", "entry.enqueued_ms",
        "entry.source", "handovers", "now.state", "now.consumer", "now.delivery", "now.due_ms",
    )  # fmt: skip
    rows = (
        trace_messages(own, now=F.lit(True))
        .filter("generation = generations")
        .filter(is_held | ~opening.has_counted(F.col("now.step")))
        .groupBy("request", "partition", F.col("now.state").alias("state"))
        .agg(
            F.count("*").alias("messages"),
            F.count("entry").alias("entries"),
            F.max("sequence").alias("last_sequence"),
            F.collect_list(F.when(is_held, held)).alias("held"),
        )
        .collect()
    )
    found: defaultdict[int, dict[int, list[Row]]] = defaultdict(dict)
    for row in rows:
        found[row["request"]].setdefault(row["partition"], []).append(row)
    return found


def _about_queues(own: DataFrame) -> defaultdict[int, dict[int, Row]]:
    """By request and partition: how often a queue was deleted, and what it refused since (R60)."""
    is_counted = F.expr(REFUSAL) & (F.col("generation") == F.col("generations"))
    # A line that is there twice counts once.
    refused = F.count_distinct(F.when(is_counted, F.struct("step", "raw")))
    rows = (
        number_generations(own, *QUEUE)
        .groupBy("request", "partition")
        .agg(F.max("generations").alias("deletions"), refused.alias("refused"))
        .collect()
    )
    found: defaultdict[int, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        found[row["request"]][row["partition"]] = row
    return found


def _lines_by_request(lines: DataFrame, requests: Requests) -> DataFrame:
    """Each line once per request that needs it, with the number of the request as `request`."""
    rows = [
        (number, queue, at.partition, at.step, None)
        if isinstance(at, AtStep)
        else (number, queue, None, None, at.time_ms)
        for number, (queue, at) in enumerate(requests)
    ]
    requests_frame = lines.sparkSession.createDataFrame(
        rows, "request int, queue string, in_partition int, to_step long, to_ms long"
    )
    wanted = lines.filter(F.col("queue").isin(*{queue for queue, _ in requests}))
    if len(requests) == 1:  # so that Spark can skip files and row groups
        wanted = wanted.filter(until(requests[0][1]))
    return (
        wanted.join(F.broadcast(requests_frame), "queue")
        .filter(F.expr("in_partition is null or in_partition = partition"))
        .filter(F.expr("to_step is null or step <= to_step"))
        .filter(F.expr("to_ms is null or time_ms <= to_ms"))
    )


def _contents(
    queue: str,
    moment: ResolvedMoment,
    partition: int,
    states: Sequence[Row],
    before: Mapping[str, int],
) -> Contents:
    """The contents of a partition's ring.

    `before` is what it had counted at the opening, with all that it has refused.
    """
    counts = {name: before.get(name, 0) for name in (*EXIT_EVENTS, "refused")}
    traced = sum(row["messages"] for row in states)
    total = traced + sum(counts[name] for name in EXIT_EVENTS)
    last = max([row["last_sequence"] for row in states] + [before.get("last_sequence", 0)])
    if total != last or traced != sum(row["entries"] for row in states):
        raise TruncatedHistory(
            f"queue {queue!r}, partition {partition}: there are events of {total} of its {last} "
            "messages; retention removed the first from the topic: use --lake if a lake has them"
        )
    for row in states:
        counts[row["state"]] = counts.get(row["state"], 0) + row["messages"]
    held = {row["state"]: row["held"] for row in states}
    counts["messages"] = sum(counts.get(state, 0) for state in HELD_STATES)
    counts["added"] = total
    messages = {
        state: tuple(map(_held_message, sorted(held.get(state, ()), key=order)))
        for state, order in _ORDERS.items()
    }
    complete = {name: counts.get(name, 0) for name in (*COUNTS, "messages")}
    return Contents(queue, partition, moment, messages, complete)


def _delivery_order(message: Row) -> tuple[int, int]:
    """Sort key of R14: priority, then position (§1)."""
    due_ms, sequence = message["came_due_ms"], message["sequence"]
    position = plain_position(sequence) if due_ms is None else due_position(due_ms, sequence)
    return -message["priority"], position


_ORDERS: Mapping[str, Callable[[Row], tuple[Any, ...]]] = {
    "ready": _delivery_order,
    "delivering": lambda message: (message["consumer"], message["delivery"]),
    "scheduled": lambda message: (message["due_ms"], message["sequence"]),
}
"""By state, what the messages are sorted by."""


def _held_message(message: Row) -> HeldMessage:
    state = message["state"]
    return HeldMessage(
        message["id"], message["sequence"], message["priority"], message["enqueued_ms"],
        message["source"], message["handovers"] or 0,
        message["consumer"] if state == "delivering" else "",
        message["delivery"] if state == "delivering" else 0,
        message["due_ms"] if state == "scheduled" else 0,
    )  # fmt: skip


def trace_messages(lines: DataFrame, **moments: Column) -> DataFrame:
    """Each message with its last transition at each moment.

    The last transition alone decides the state of a message.

    Args:
        lines: result of `read_lines` up to the last of the moments, with a column `request`, so
            that one pass can answer several requests about a queue.
        moments: by name of the new column: whether a line is of that moment or before.

    Returns:
        request, partition, queue, `generation`, `generations`, sequence; `entry`, a struct (null if
        the events do not go back so far); `came_due_ms`, when a message that was sent with a
        schedule became due; `handovers`, the number of all deliveries; and a struct per moment
        (null if the message had not been sent) with its `state`, one of HELD_STATES or EXIT_EVENTS,
        and other fields of the transition.
    """
    event = F.col("event")
    after = F.expr(STATE_AFTER)
    state = F.when(after == ENDED, event).otherwise(after)
    # The fields of the order come first, so that the greatest struct is the last transition.
    transition = F.struct(
        "step", "offset", "line", state.alias("state"), "time_ms", "due_ms", "consumer", "delivery",
        "attempt", "reason", "cause", "to", "by",
    )  # fmt: skip
    entry = F.struct(
        "step", "time_ms", "id", "source", "enqueued_ms", "priority", "expires_at_ms",
        (event == "scheduled").alias("to_schedule"),
    )  # fmt: skip
    due = F.struct("step", "due_ms")
    last = [F.max(F.when(condition, transition)).alias(name) for name, condition in moments.items()]
    about_messages = number_generations(lines, *QUEUE).filter(F.col("sequence").isNotNull())
    return (
        about_messages.groupBy(*_MESSAGE)
        .agg(
            F.first("generations").alias("generations"),
            F.max(F.when(event.isin(*ENTRY_EVENTS), entry)).alias("entry"),
            F.min(F.when(event == "due", due)).alias("first_due"),
            F.max("handovers").alias("handovers"),
            *last,
        )
        .withColumn("came_due_ms", F.when(F.col("entry.to_schedule"), F.col("first_due.due_ms")))
        .drop("first_due")
    )
