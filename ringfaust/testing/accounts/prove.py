"""Prove the accounts of an application from its topics, offset by offset (R100).

The proof does not use the worker's counters. Plain read_committed consumers read the input and
output topics, and `reconciler` finds the one outcome of each record.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ringfaust.config import WorkerConfig
from ringfaust.kafka.reader import CannotRead, first_offsets, read_whole
from ringfaust.protocol.records import InRecord, Role
from ringfaust.testing.accounts.proof import Proof, QueueAccount
from ringfaust.testing.accounts.reconciler import Reconciler

__all__ = ["CannotRead", "Proof", "QueueAccount", "counter_differences", "prove"]


async def prove(
    worker: WorkerConfig,
    input_topics: Collection[str],
    held: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    evicted_payload: str = "full",
    progress: Callable[[Role, int], None] = lambda role, records: None,
) -> Proof:
    """Read all topics up to their present ends, and reconcile them.

    The application must be idle: records that arrive meanwhile may show up in one topic and not in
    another.

    Args:
        worker: the configuration, which names the brokers and the application's topics.
        input_topics: the producers' topics.
        held: by queue, the `answer` of the `list` command, requested while idle; None takes what
            the queues hold from the events.
        evicted_payload: the queues' setting of this name; evicted records are compared only if it
            is `full`.
        progress: called with a topic's role and the number of its records just read.

    Raises:
        CannotRead: a topic is missing, or its first records are deleted.
    """
    client = worker.client_options()
    begins = await first_offsets(client, input_topics)
    if begins:
        await _refuse_unreported(client, worker, begins)
    reconciler = Reconciler(input_topics, evicted_payload, begins)
    steps = {
        Role.PRODUCER: (input_topics, reconciler.take_input),
        Role.HOP: ([worker.topic(Role.HOP)], reconciler.take_repartitioned),
        Role.EVENTS: ([worker.topic(Role.EVENTS)], reconciler.take_events),
        Role.EVICTED: ([worker.topic(Role.EVICTED)], reconciler.take_evicted),
        Role.DEAD: ([worker.topic(Role.DEAD)], reconciler.take_dead),
        Role.DISPATCHED: ([worker.topic(Role.DISPATCHED)], reconciler.take_dispatched),
    }
    with _rare_gc():
        for role, (topics, take) in steps.items():
            from_first = role is not Role.PRODUCER or not begins
            progressed = partial(progress, role)
            await read_whole(client, topics, take, progressed, from_first=from_first)
        return reconciler.proof(held)


async def _refuse_unreported(
    client: Mapping[str, Any], worker: WorkerConfig, begins: Mapping[tuple[str, int], int]
) -> None:
    """Refuse input topics whose first records are deleted, unless a worker has reported a gap.

    Raises:
        CannotRead: nothing accounts for the deleted records.
    """
    reported: set[tuple[str, int, int]] = set()

    def take(records: Sequence[InRecord]) -> None:
        for record in records:
            for text in (record.value or b"").split(b"\n"):
                if b'"event":"gap"' in text and (line := json.loads(text))["last"] is not None:
                    reported.add((line["topic"], line["partition"], line["last"] + 1))

    await read_whole(client, [worker.topic(Role.EVENTS)], take)
    for (topic, partition), begin in begins.items():
        if (topic, partition, begin) not in reported:
            raise CannotRead(
                f"topic {topic}, partition {partition}, begins at offset {begin}: retention "
                "removed its first records, so the accounts cannot be proved"
            )


@contextmanager
def _rare_gc() -> Iterator[None]:
    """Run the cycle collector rarely: it would take a fifth of the time and find nothing."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def counter_differences(proof: Proof, held: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the differences between the worker's counters and the proof, a sentence each.

    Args:
        proof: the result of `prove`.
        held: by queue, the `answer` of the `list` command.
    """
    found = []
    for queue, listed in held.items():
        account = proof.accounts.get(queue, QueueAccount(queue))
        for name, counted in listed["counts"].items():
            proved = getattr(account.counts, name)
            if proved != counted:
                found.append(
                    f"queue {queue}: the worker counts {name} {counted:,}, the topics {proved:,}"
                )
    return found
