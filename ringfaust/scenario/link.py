"""The traffic of a scenario with a worker: records in, and what the worker wrote of them.

One partition. Everything a worker writes is read, read_committed, and everything must be explained
by a record of ours: an event by nobody's record, an output without an event, a second reply are
errors, whenever they turn up. Of a host that may repeat its output what is the same to the byte is
dropped, as every reader of it has to do (docs/spark.md).
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from ringfaust.scenario.player import Difference
from ringfaust.scenario.process import Process
from ringfaust.wire.record import Headers, Role

_POLL_MS = 500
_FETCH_WAIT_MS = 50
"""That a transaction ended behind the last record is told by a fetch that brings nothing."""
_OUTPUTS = (Role.EVENTS, Role.REPLIES, Role.DISPATCHED, Role.EVICTED, Role.DEAD)
_ENDS_PRODUCED = ("added", "scheduled", "refused", "unreadable")
_ENDS_CONTROL = ("done", "refused", "unreadable")


class Record(NamedTuple):
    """A record to be written."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = ()
    reply: str = ""
    """The key of the reply that a control record asks for."""
    lags_for: str = ""
    """The queue whose pulling is paused: nothing comes of the record yet (R90)."""
    frees: str = ""
    """The queue whose lagging records it lets come."""


class Outcome(NamedTuple):
    """All that a worker wrote about a step."""

    lines: list[dict[str, Any]]
    """Of the events, in their order."""
    outputs: dict[Role, list[Any]]
    """The records of the other topics, in their order."""
    replies: dict[str, dict[str, Any]]
    """By the position of the control record."""


class Link:
    """See the head of this file. Make it where an event loop runs."""

    def __init__(
        self,
        bootstrap_servers: str,
        application: str,
        worker: Process,
        partition: int = 0,
        *,
        answer_seconds: float = 30.0,
        drops_repeats: bool = False,
    ) -> None:
        """`answer_seconds`: how long a worker that runs may take for one step."""
        self._partition = partition
        self._answer_seconds = answer_seconds
        self._known: set[Any] | None = set() if drops_repeats else None
        self._worker = worker
        self._control_topic = f"{application}.{Role.CONTROL}"
        self._roles = {f"{application}.{role}": role for role in _OUTPUTS}
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=True
        )
        self._transactions = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers,
            transactional_id=f"{application}-sessions-{partition}",
        )
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            isolation_level="read_committed",
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )
        self._lines: list[dict[str, Any]] = []
        self._records: dict[Role, deque[Any]] = {role: deque() for role in _OUTPUTS[2:]}
        self._replies: list[tuple[str, dict[str, Any]]] = []
        self._lagging: dict[str, Record] = {}
        """By position: what has been written and must not have been acted on."""

    async def open(self) -> None:
        """Connect, and read all outputs from their beginning."""
        await self._consumer.start()
        places = [TopicPartition(topic, self._partition) for topic in self._roles]
        self._consumer.assign(places)
        await self._consumer.seek_to_beginning(*places)
        await self._producer.start()
        await self._transactions.start()

    async def close(self) -> None:
        """Disconnect."""
        for client in (self._consumer, self._producer, self._transactions):
            await client.stop()

    # --- in --------------------------------------------------------------------------------------

    async def step(self, records: Sequence[Record], as_one: bool = False) -> Outcome:
        """Write records, in one Kafka transaction if `as_one`, and wait for all they caused.

        Raises:
            Difference: what the worker wrote does not agree with itself.
            WorkerFailed: it wrote too little of it, in time.
        """
        if as_one:
            async with self._transactions.transaction():
                places = await self._write(self._transactions, records)
        else:
            places = await self._write(self._producer, records)
        wanted = self._wanted(dict(zip(places, records, strict=True)))
        asked = [record.reply for record in records if record.reply]
        await self._until(lambda: self._is_whole(wanted, asked), self._answer_seconds)
        return self._take(wanted)

    def _wanted(self, written: Mapping[str, Record]) -> dict[str, Record]:
        """Those of which something must come now: also those that lagged until now."""
        freed = {record.frees for record in written.values() if record.frees}
        self._lagging |= {place: each for place, each in written.items() if each.lags_for}
        come = {place: each for place, each in self._lagging.items() if each.lags_for in freed}
        for place in come:
            del self._lagging[place]
        return {p: each for p, each in written.items() if not each.lags_for} | come

    async def abort(self, records: Sequence[Record]) -> None:
        """Write records in a Kafka transaction that is then aborted: nobody may act on them."""
        await self._transactions.begin_transaction()
        await self._write(self._transactions, records)
        await self._transactions.abort_transaction()

    async def ask(self, record: Record, seconds: float) -> dict[str, Any]:
        """Write a command that causes no event, and return its reply."""
        await self._write(self._producer, [record])
        await self._until(lambda: bool(self._replies), seconds)
        key, body = self._replies.pop(0)
        if key != record.reply:
            raise Difference(0, "reply", record.reply, key)
        return body

    async def _write(self, producer: Any, records: Sequence[Record]) -> list[str]:
        """Where they stand, as topic/partition/offset."""
        sent = [
            await producer.send(
                each.topic,
                each.value,
                key=each.key,
                headers=list(each.headers),
                partition=self._partition,
            )
            for each in records
        ]
        stored = [await future for future in sent]
        return [f"{at.topic}/{at.partition}/{at.offset}" for at in stored]

    # --- out -------------------------------------------------------------------------------------

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            self._worker.check()
            if time.monotonic() > deadline:
                so_far = f"; its events so far: {self._lines}" if self._lines else ""
                raise self._worker.failed(f"gave no answer for {seconds:.0f} s{so_far}")
            await self._read(_POLL_MS)

    async def _read(self, wait_ms: int) -> None:
        for place, records in (await self._consumer.getmany(timeout_ms=wait_ms)).items():
            role = self._roles[place.topic]
            for record in records:
                if role is Role.EVENTS:
                    lines = [line for line in record.value.splitlines() if self._is_new(line)]
                    self._lines += map(json.loads, lines)
                elif not self._is_new((role, record.key, record.value, record.headers)):
                    continue
                elif role is Role.REPLIES:
                    self._replies.append((record.key.decode(), json.loads(record.value)))
                else:
                    self._records[role].append(record)

    def _is_new(self, output: Any) -> bool:
        if self._known is None:
            return True
        before = len(self._known)
        self._known.add(output)
        return len(self._known) > before

    def _is_whole(self, wanted: Mapping[str, Record], asked: Sequence[str]) -> bool:
        """Has all arrived? Events tell how much of the rest there is to come."""
        ended = {line["by"] for line in self._lines if line["event"] in self._ends(str(line["by"]))}
        return (
            ended >= wanted.keys()
            and len(self._replies) >= len(asked)
            and all(
                len(records) >= _count(self._lines, role) for role, records in self._records.items()
            )
        )

    def _ends(self, by: str) -> Sequence[str]:
        """Events that are the last, or the certain one, of a record's."""
        topic = by.split("/", 1)[0]
        return _ENDS_CONTROL if topic == self._control_topic else _ENDS_PRODUCED

    def _take(self, wanted: Mapping[str, Record]) -> Outcome:
        lines, self._lines = self._lines, []
        replies, self._replies = self._replies, []
        outputs = {role: list(records) for role, records in self._records.items()}
        for records in self._records.values():
            records.clear()
        strange = [line for line in lines if line["by"] not in wanted]
        if strange:
            for line in strange:  # so that nobody waits for it again
                self._lagging.pop(line["by"], None)
            raise Difference(0, "events", f"of {', '.join(wanted)} only", strange)
        place_of = {record.reply: place for place, record in wanted.items() if record.reply}
        keys = [key for key, _ in replies]
        if sorted(keys) != sorted(place_of):
            raise Difference(0, "replies", list(place_of), keys)
        return Outcome(lines, outputs, {place_of[key]: body for key, body in replies})

    async def left_over(self) -> list[str]:
        """Read to the end of all outputs, and drop what nobody has taken; a line for each."""
        ends = await self._consumer.end_offsets(list(self._consumer.assignment()))
        deadline = time.monotonic() + self._answer_seconds
        for place, end in ends.items():
            while await self._consumer.position(place) < end:
                if time.monotonic() > deadline:
                    raise self._worker.failed(f"wrote something into {place.topic} that stays open")
                await self._read(_POLL_MS)
        found = [f"event {line}" for line in self._lines]
        found += [f"reply {key} {body}" for key, body in self._replies]
        for role, records in self._records.items():
            found += [f"{role} {dict(record.headers)}" for record in records]
            records.clear()
        self._lines.clear()
        self._replies.clear()
        return found


def _count(lines: Sequence[Mapping[str, Any]], role: Role) -> int:
    return sum(ROLE_OF.get(line["event"]) is role for line in lines)


ROLE_OF = {
    "dispatched": Role.DISPATCHED,
    "evicted": Role.EVICTED,
    "dead": Role.DEAD,
    "expired": Role.DEAD,
    "unreadable": Role.DEAD,
}
"""The topic that has a record for each such event."""
