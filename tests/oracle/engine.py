"""Our side: the engine on the memory host, its queue set to `compat: artemis`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.queue import Queue
from ringfaust.processor.memory import MemoryHost
from tests.held import held_by
from tests.oracle.operations import Settings

Fact = tuple[str, ...]
QUEUE = "q"


@dataclass
class Seen:
    """What one operation did, and what it left; the same for both sides."""

    delivered: list[Fact] = field(default_factory=list)
    """(consumer, id, attempt), in order."""
    evicted: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)
    ready: list[str] = field(default_factory=list)
    """In delivery order."""
    delivering: dict[str, list[str]] = field(default_factory=dict)
    """By consumer, in the order of the hand-over; without what is acked in an open transaction."""
    scheduled: list[tuple[int, str]] = field(default_factory=list)
    """(due time in ms, id), sorted."""
    counts: dict[str, int] = field(default_factory=dict)


FACTS = ("delivered", "evicted", "dead", "expired")
"""Fields of `Seen` that tell what happened."""
COUNTS = (
    "ready", "delivering", "scheduled", "messages", "added", "acked", "evicted", "expired", "dead",
)  # fmt: skip


def fields_of(settings: Settings, slot_ms: int) -> dict[str, Any]:
    """The settings of a history as fields of its queue."""
    return {
        "compat": "artemis",
        "ring_size": settings.ring_size,
        "max_attempts": settings.max_attempts,
        "redelivery_delay": settings.delay_ms(slot_ms),
    }


class Engine:
    """A queue in memory, and the client's part of its sessions (R80)."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """`fields`: of the queue."""
        self.host = MemoryHost(Catalog({QUEUE: {**fields, "consumer_timeout": 0}}, {}))
        self.pending: dict[str, list[c.Ack]] = {}
        """By session: what is acked in the open transaction, in order."""

    @property
    def queue(self) -> Queue:
        """The queue as it is now."""
        queue = self.host.state.queue(QUEUE)
        assert queue is not None
        return queue

    def held(self, consumer: str) -> list[str]:
        """What the consumer can settle, in the order it was handed over."""
        queue = self.queue
        attached = queue.consumers.get(consumer)
        acked = {
            ack.message
            for acks in self.pending.values()
            for ack in acks
            if ack.consumer == consumer
        }
        deliveries = held_by(queue, attached) if attached else []
        return [d.message.id for d in deliveries if d.message.id not in acked]

    def play(self, commands: list[c.Command], now_ms: int) -> Seen:
        """Do commands at one time."""
        effects = [
            effect for command in commands for effect in self.host.step(command, now_ms).all_effects
        ]
        seen = Seen()
        for effect in effects:
            match effect:
                case e.Dispatched(_, delivery):
                    message = delivery.message
                    seen.delivered.append((delivery.consumer, message.id, str(message.attempts)))
                case e.Evicted(_, message):
                    seen.evicted.append(message.id)
                case e.Dead(_, message):
                    seen.dead.append(message.id)
                case e.Expired(_, message):
                    seen.expired.append(message.id)
                case e.Refused():
                    raise AssertionError(f"the engine refused {commands}: {effect}")
        queue = self.queue
        seen.ready = [message.id for message in queue.in_order()]
        seen.delivering = {name: self.held(name) for name in queue.consumers}
        seen.scheduled = sorted((message.due_ms, message.id) for _, message in queue.scheduled)
        counts = queue.counts.as_dict()
        seen.counts = {name: counts[name] for name in COUNTS}
        return seen
