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

from ringfaust.kafka.names import session_transactional_id, topic_name
from ringfaust.processor.processor import START
from ringfaust.protocol.headers import ID
from ringfaust.protocol.records import Headers, Role
from ringfaust.testing.process import Process
from ringfaust.testing.scenario.player import Difference

_POLL_MS = 500
_FETCH_WAIT_MS = 50
"""That a transaction ended behind the last record is told by a fetch that brings nothing."""
_OUTPUTS = (Role.EVENTS, Role.REPLIES, Role.DISPATCHED, Role.EVICTED, Role.DEAD)
_ENDS_PRODUCED = ("added", "scheduled", "unrouted", "pending", "refused", "unreadable")
_ENDS_CONTROL = ("done", "refused", "unreadable")


class ScenarioRecord(NamedTuple):
    """A record to be written."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = ()
    reply: str = ""
    """The key of the reply that a control record asks for."""
    waits_for: tuple[str, ...] = ()
    """The queues that may not be pulled: then nothing comes of the record yet (R60, R90)."""
    is_held: bool = False
    """One of them is paused, so it is certain that nothing comes."""

    @property
    def id(self) -> str:
        """Of a producer's record, the message's."""
        return dict(self.headers).get(ID, b"").decode()


class WorkerOutput(NamedTuple):
    """All that a worker wrote about a step, or about its own start."""

    lines: list[dict[str, Any]]
    """Of the events, in their order."""
    outputs: dict[Role, list[Any]]
    """The records of the other topics, in their order."""
    replies: dict[str, dict[str, Any]]
    """By the position of the control record."""
    told: list[tuple[dict[str, Any], dict[str, Any]]]
    """Of each send that was refused: the event, and the reply that its message's id got (R62)."""


class WorkerChannel:
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
        self.partition = partition
        """Which it reads and writes."""
        self._answer_seconds = answer_seconds
        self._known: set[Any] | None = set() if drops_repeats else None
        self._worker = worker
        self._control_topic = topic_name(application, Role.CONTROL)
        self._roles = {topic_name(application, role): role for role in _OUTPUTS}
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=True
        )
        self._transactions = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers,
            transactional_id=session_transactional_id(application, partition),
        )
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            isolation_level="read_committed",
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )
        self._lines: list[dict[str, Any]] = []
        self._records: dict[Role, deque[Any]] = {role: deque() for role in _OUTPUTS[2:]}
        self._replies: list[tuple[str, dict[str, Any]]] = []
        self._ids: dict[str, str] = {}
        """By position of a producer's record: the message's id."""
        self._lagging: dict[str, ScenarioRecord] = {}
        """By position: what has been written, and perhaps is not taken yet."""

    async def open(self) -> None:
        """Connect, and read all outputs from their beginning."""
        await self._consumer.start()
        places = [TopicPartition(topic, self.partition) for topic in self._roles]
        self._consumer.assign(places)
        await self._consumer.seek_to_beginning(*places)
        await self._producer.start()
        await self._transactions.start()

    async def close(self) -> None:
        """Disconnect."""
        for client in (self._consumer, self._producer, self._transactions):
            await client.stop()

    # --- in --------------------------------------------------------------------------------------

    async def step(self, records: Sequence[ScenarioRecord]) -> WorkerOutput:
        """Write records, none of which may lag, and wait for all they caused.

        Raises:
            Difference: what the worker wrote does not agree with itself.
            WorkerFailed: it wrote too little of it, in time.
        """
        return await self.take(await self.write(records))

    async def write(
        self, records: Sequence[ScenarioRecord], as_one: bool = False
    ) -> dict[str, ScenarioRecord]:
        """Write records, in one Kafka transaction if `as_one`, and wait for all they caused.

        Returns:
            Those that are certain to be taken, by position; the others lag, perhaps.

        Raises:
            WorkerFailed: the worker wrote too little of it, in time.
        """
        if as_one:
            async with self._transactions.transaction():
                places = await self._write(self._transactions, records)
        else:
            places = await self._write(self._producer, records)
        written = dict(zip(places, records, strict=True))
        self._ids |= {place: each.id for place, each in written.items()}
        self._lagging |= {place: each for place, each in written.items() if each.waits_for}
        wanted = {place: each for place, each in written.items() if not each.waits_for}
        await self._until_whole(wanted)
        return wanted

    def lagging(self) -> list[tuple[str, ScenarioRecord]]:
        """Of each topic the next record that lags, with its position."""
        first: dict[str, tuple[str, ScenarioRecord]] = {}
        for place, record in self._lagging.items():
            first.setdefault(record.topic, (place, record))
        return list(first.values())

    async def come(self, place: str) -> dict[str, ScenarioRecord]:
        """Wait for what a record that lagged has caused.

        Raises:
            WorkerFailed: nothing came of it, in time.
        """
        wanted = {place: self._lagging.pop(place)}
        await self._until_whole(wanted)
        return wanted

    async def has_come(self, place: str) -> bool:
        """Has the worker taken this record by now?"""
        await self._read_to_end()
        return place in self._ended()

    async def abort(self, records: Sequence[ScenarioRecord]) -> None:
        """Write records in a Kafka transaction that is then aborted: nobody may act on them."""
        await self._transactions.begin_transaction()
        await self._write(self._transactions, records)
        await self._transactions.abort_transaction()

    async def ask(self, record: ScenarioRecord, seconds: float) -> dict[str, Any]:
        """Write a command that causes no event, and return its reply."""
        await self._write(self._producer, [record])
        await self._until(lambda: any(key == record.reply for key, _ in self._replies), seconds)
        at = next(i for i, (key, _) in enumerate(self._replies) if key == record.reply)
        return self._replies.pop(at)[1]

    async def _write(self, producer: Any, records: Sequence[ScenarioRecord]) -> list[str]:
        """Where they stand, as topic/partition/offset."""
        sent = [
            await producer.send(
                each.topic,
                each.value,
                key=each.key,
                headers=list(each.headers),
                partition=self.partition,
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

    async def _until_whole(self, wanted: Mapping[str, ScenarioRecord]) -> None:
        """Wait until all has arrived. Events tell how much of the rest there is to come."""
        asked = [record.reply for record in wanted.values() if record.reply]

        def is_whole() -> bool:
            return (
                self._ended() >= wanted.keys()
                and len(self._replies) >= len(asked) + len(self._refused_sends())
                and all(
                    len(records) >= _count(self._lines, role)
                    for role, records in self._records.items()
                )
            )

        await self._until(is_whole, self._answer_seconds)

    def _ended(self) -> set[str]:
        """Records that the worker has taken, by the events."""
        return {line["by"] for line in self._lines if line["event"] in self._ends(str(line["by"]))}

    def _ends(self, by: str) -> Sequence[str]:
        """Events that are the last, or the certain one, of a record's."""
        return _ENDS_CONTROL if self._is_control(by) else _ENDS_PRODUCED

    def _is_control(self, by: str) -> bool:
        return by.split("/", 1)[0] == self._control_topic

    def _refused_sends(self) -> list[tuple[str, dict[str, Any]]]:
        """The events of refused sends, each with the key of its reply: the message's id (R62).

        A send that a command has brought, of a transaction say, is refused alone: then it is not
        the last thing that the command did.
        """
        found = []
        for line, next_line in zip(self._lines, [*self._lines[1:], {}], strict=False):
            if line["event"] != "refused":
                continue
            if not self._is_control(line["by"]):
                found.append((self._ids.get(line["by"], ""), line))
            elif next_line.get("by") == line["by"]:
                found.append((str(line["about"]), line))
        return found

    async def take(self, wanted: Mapping[str, ScenarioRecord]) -> WorkerOutput:
        """All that has arrived.

        Raises:
            Difference: some of it is of none of these records.
        """
        told = self._refused_sends()
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
        by_id = [key for key, _ in told]
        if sorted(keys) != sorted([*place_of, *by_id]):
            raise Difference(0, "replies", [*place_of, *by_id], keys)
        said = [(key, body) for key, body in replies if key not in place_of]
        pairs = []
        for key, line in told:
            at = next(i for i, (found, _) in enumerate(said) if found == key)
            pairs.append((line, said.pop(at)[1]))
        answers = {place_of[key]: body for key, body in replies if key in place_of}
        return WorkerOutput(lines, outputs, answers, pairs)

    async def started(self) -> WorkerOutput:
        """What a worker has done on its own start; ask when it has answered."""
        await self._read_to_end()
        return await self.take({START: ScenarioRecord("", None, b"")})

    async def left_over(self) -> list[str]:
        """Read to the end of all outputs, and drop what nobody has taken; a line for each."""
        await self._read_to_end()
        found = [f"event {line}" for line in self._lines]
        found += [f"reply {key} {body}" for key, body in self._replies]
        for role, records in self._records.items():
            found += [f"{role} {dict(record.headers)}" for record in records]
            records.clear()
        self._lines.clear()
        self._replies.clear()
        return found

    async def _read_to_end(self) -> None:
        """Read all outputs up to their present end."""
        ends = await self._consumer.end_offsets(list(self._consumer.assignment()))
        deadline = time.monotonic() + self._answer_seconds
        for place, end in ends.items():
            while await self._consumer.position(place) < end:
                if time.monotonic() > deadline:
                    raise self._worker.failed(f"wrote something into {place.topic} that stays open")
                await self._read(_POLL_MS)


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
