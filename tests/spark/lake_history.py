"""Events and outputs of rings, made by the real core in memory, and written to topics."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from ringfaust.config import WorkerConfig
from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import AckMode
from ringfaust.kafka.admin import NewTopic, open_admin
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.events import WRITERS, event_tail
from ringfaust.protocol.outputs import dead_record, dispatched_record, evicted_record
from ringfaust.protocol.records import OutRecord, Payload, Role

START_MS = 1_760_000_030_000
ROLES = (Role.EVENTS, Role.DISPATCHED, Role.EVICTED, Role.DEAD)
QUEUES: dict[str, dict[str, object]] = {
    "a": {"ring_size": 3, "max_attempts": 2, "redelivery_delay": 500},
    "b": {"ring_size": 2},
    "x": {"ring_size": 4, "scheduled_when_full": "displace"},
}


class LakeHistory:
    """The rings of one partition: commands in, event lines and output records out."""

    def __init__(
        self,
        partition: int,
        start_ms: int = START_MS,
        queues: dict[str, dict[str, object]] = QUEUES,
    ) -> None:
        self.partition = partition
        self.host = MemoryHost(Catalog(queues, {}))
        self.now_ms = start_ms
        self.lines: list[str] = []
        self.records: dict[Role, list[OutRecord]] = {role: [] for role in ROLES[1:]}
        self._sent = 0

    def do(self, command: Any) -> list[e.Effect]:
        """Process a command; time advances a little."""
        self.now_ms += 137
        effects = self.host.step(command, self.now_ms).all_effects
        self._sent += 1
        by = "tick" if isinstance(command, c.Sweep) else f"in/{self.partition}/{self._sent}"
        tail = event_tail(self.now_ms, by)
        for effect in effects:
            line = WRITERS[type(effect)](effect, self.host.state.step)
            self.lines.append(line + tail)
            if isinstance(effect, e.Dispatched):
                self.records[Role.DISPATCHED].append(dispatched_record(effect))
            elif isinstance(effect, e.Evicted):
                self.records[Role.EVICTED].append(evicted_record(effect))
            elif isinstance(effect, e.Dead | e.Expired):
                self.records[Role.DEAD].append(dead_record(effect, self.now_ms))
        return effects

    def send(self, queue: str, *, delay_ms: int = 0, ttl_ms: int = 0, priority: int = 4) -> str:
        """Send a message; returns its id, which is its source."""
        source = f"in/{self.partition}/{self._sent + 1}"
        now_ms = self.now_ms + 137
        payload = Payload(b"key", b"value of " + source.encode(), (("colour", b"blue"),), source)
        self.do(
            c.Send(
                queue, source, now_ms, priority, now_ms + delay_ms if delay_ms else 0,
                now_ms + ttl_ms if ttl_ms else 0, "", 10 + len(source), payload,
            )
        )  # fmt: skip
        return source

    def continue_randomly(self, commands: int, seed: int) -> None:
        """Random sends, settles, detaches, operator commands and passing time."""
        rng = random.Random(seed)
        for consumer in ("c1", "c2"):
            for queue in QUEUES:
                mode = AckMode.NONE if queue == "x" and consumer == "c2" else AckMode.INDIVIDUAL
                self.do(c.Attach(queue, consumer, 2, ack_mode=mode))
        for _ in range(commands):
            queue = rng.choice(list(QUEUES))
            kind = rng.random()
            if kind < 0.5:
                delay_ms = rng.choice((0, 0, 0, 400, 3000))
                ttl_ms = rng.choice((0, 0, 600, 5000))
                self.send(queue, delay_ms=delay_ms, ttl_ms=ttl_ms, priority=rng.choice((4, 4, 7)))
            elif kind < 0.8:
                self._settle(rng, queue)
            elif kind < 0.9:
                self.do(c.Sweep())
            else:
                self._operate(rng, queue)

    def _settle(self, rng: random.Random, queue: str) -> None:
        known = self.host.state.queues.get(queue)
        held = [d for _, d in known.deliveries] if known else []
        if held:
            d = rng.choice(held)
            what = rng.choice((c.Ack, c.Ack, c.Release, c.Release, c.Reject))
            self.do(what(queue, d.consumer, d.message.id, d.number))
        else:
            self.do(c.Ack(queue, "c1", "nothing"))  # refused

    def _operate(self, rng: random.Random, queue: str) -> None:
        known = self.host.state.queues.get(queue)
        waiting = [m for _, m in known.scheduled] if known else []
        waiting += list(known.in_order()) if known else []
        consumer = rng.choice(("c1", "c2"))
        kind = rng.random()
        if waiting and kind < 0.5:
            id_ = rng.choice(waiting).id
            self.do(c.Remove(queue, id_) if kind < 0.25 else c.Move(queue, id_, "b"))
        elif kind < 0.75:
            self.do(c.Detach(queue, consumer))
            self.do(c.Attach(queue, consumer, 2))
        elif kind < 0.85:
            self.do(c.DeleteQueue(queue))
            self.do(c.Attach(queue, consumer, 1))
        else:
            self.do(c.Purge(queue))

    def values(self, lines_each: int = 7, *, after: int = 0) -> list[bytes]:
        """The records of the events topic, without the first `after` lines."""
        parts = range(after, len(self.lines), lines_each)
        return ["\n".join(self.lines[i : i + lines_each]).encode() for i in parts]


def parse(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The lines as dicts."""
    return [json.loads(line) for line in lines]


async def make_topics(worker: WorkerConfig) -> None:
    """Create the topics that the lake reads."""
    async with open_admin(worker.brokers()) as admin:
        names = [worker.topic(role) for role in (*ROLES, Role.CONTROL, Role.HOP)]
        await admin.create([NewTopic(name, worker.partitions, 1, {}) for name in names])


async def write_topics(
    worker: WorkerConfig,
    partition: int,
    events: Sequence[bytes | None],
    records: dict[Role, list[OutRecord]] | None = None,
) -> None:
    """Write records to the topics of the lake, in order."""
    async with AIOKafkaProducer(bootstrap_servers=worker.bootstrap_servers) as producer:
        for value in events:
            await producer.send(worker.topic(Role.EVENTS), value, b"", partition=partition)
        for role, outputs in (records or {}).items():
            for key, value, headers in outputs:
                await producer.send(worker.topic(role), value, key, partition, headers=headers)
