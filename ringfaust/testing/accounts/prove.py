"""Prove the accounts of an application from its topics, offset by offset (R100).

Nothing here asks the worker what it counted. Plain read_committed consumers read the input topics
and all that came of them; `account_book.py` finds each record's one fate.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from ringfaust.config import WorkerConfig
from ringfaust.kafka.reader import CannotRead, read_whole
from ringfaust.protocol.records import Role
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
    """Read everything up to the present end, and balance it.

    The application has to be at rest: what arrives meanwhile is seen in some topics and not in
    others.

    Args:
        worker: names the brokers and the application's topics.
        input_topics: the producers' topics.
        held: by queue, the `answer` to the protocol's `list`, asked when all was at rest; without
            it, what is held is taken from the events.
        evicted_payload: as the queues are set; only `full` lets evicted records be compared.
        progress: called with a topic's role and the number of its records just read.

    Raises:
        CannotRead: a topic is missing, or its first records are gone.
    """
    client = worker.client_options()
    book = Reconciler(input_topics, evicted_payload)
    steps = {
        Role.PRODUCER: (input_topics, book.take_input),
        Role.HOP: ([worker.topic(Role.HOP)], book.take_hop),
        Role.EVENTS: ([worker.topic(Role.EVENTS)], book.take_events),
        Role.EVICTED: ([worker.topic(Role.EVICTED)], book.take_evicted),
        Role.DEAD: ([worker.topic(Role.DEAD)], book.take_dead),
        Role.DISPATCHED: ([worker.topic(Role.DISPATCHED)], book.take_dispatched),
    }
    with _rare_gc():
        for role, (topics, take) in steps.items():
            await read_whole(client, topics, take, partial(progress, role))
        return book.proof(held)


@contextmanager
def _rare_gc() -> Iterator[None]:
    """All here is freed by reference counts; to look for cycles costs a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def counter_differences(proof: Proof, held: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where the worker's own counters (`counts` of `list`) differ from the proof, in words."""
    found = []
    for queue, listed in held.items():
        row = proof.rows.get(queue, QueueAccount(queue))
        for name, counted in listed["counts"].items():
            proved = getattr(row, name, counted)
            if proved != counted:
                found.append(
                    f"queue {queue}: the worker counts {name} {counted:,}, the topics {proved:,}"
                )
    return found
