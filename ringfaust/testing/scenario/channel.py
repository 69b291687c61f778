"""A channel to one partition of a worker: writes records, and reads what the worker wrote for them.

All outputs are read (read_committed), and each must have a cause among our records. An event
without such a record, an output without an event, or a second reply is an error whenever it turns
up.
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
from ringfaust.protocol.lifecycle import EVENTS
from ringfaust.protocol.records import Headers, Role, place_of
from ringfaust.testing.process import Process
from ringfaust.testing.scenario.player import Difference
from ringfaust.transactional.vendor import stop_client
from ringfaust.transactional.writer import TransactionalWriter

_POLL_MS = 500
_FETCH_WAIT_MS = 50
"""The wait of a fetch, which is kept short: only a fetch without records moves the position past
the marker of a transaction."""
_OUTPUTS = (Role.EVENTS, Role.REPLIES, Role.DISPATCHED, Role.EVICTED, Role.DEAD)
_ENDS_PRODUCED = ("added", "scheduled", "unrouted", "pending", "refused", "unreadable")
_ENDS_CONTROL = ("done", "refused", "unreadable")


class ScenarioRecord(NamedTuple):
    """A record to write."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = ()
    reply: str = ""
    """The key of the reply that a control record requests; empty if none."""
    waits_for: tuple[str, ...] = ()
    """Destinations of which some may not be pulled at present, so the record may lag (R60, R90)."""
    is_held: bool = False
    """True if one of them is paused, so the record certainly lags."""

    @property
    def id(self) -> str:
        """The message id of a producer's record."""
        raw: bytes = dict(self.headers).get(ID, b"")
        return raw.decode()


class WorkerOutput(NamedTuple):
    """Everything that a worker wrote for a step or at its start."""

    lines: list[dict[str, Any]]
    """The events in their order."""
    outputs: dict[Role, list[Any]]
    """The records of the dispatched, evicted and dead topics in their order."""
    replies: dict[str, dict[str, Any]]
    """Replies by the position of their control record."""
    refused_sends: list[tuple[dict[str, Any], dict[str, Any]]]
    """For each refused send its event, and the reply with its message id as key (R62)."""


class WorkerChannel:
    """Writes records to one partition and collects what the worker writes for them.

    Create it in the event loop that it uses.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        application: str,
        worker: Process,
        partition: int = 0,
        *,
        answer_seconds: float = 30.0,
    ) -> None:
        """Prepare a channel; `open` connects.

        Args:
            bootstrap_servers: the brokers.
            application: the worker's application.
            worker: the worker's process, which is checked while waiting.
            partition: the partition of all topics to write and read.
            answer_seconds: how long a running worker may take for one step.
        """
        self.partition = partition
        self._answer_seconds = answer_seconds
        self._worker = worker
        self._control_topic = topic_name(application, Role.CONTROL)
        self._roles = {topic_name(application, role): role for role in _OUTPUTS}
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, acks="all", enable_idempotence=True
        )
        self._transactions = TransactionalWriter(
            {"bootstrap_servers": bootstrap_servers},
            session_transactional_id(application, partition),
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
        """The message ids of producers' records, by position."""
        self._lagging: dict[str, ScenarioRecord] = {}
        """Records that may lag, by position."""

    async def open(self) -> None:
        """Connect, and read all outputs from their beginning.

        Raises:
            KafkaError: the brokers cannot be reached.
        """
        await self._consumer.start()
        positions = [TopicPartition(topic, self.partition) for topic in self._roles]
        self._consumer.assign(positions)
        await self._consumer.seek_to_beginning(*positions)
        await self._producer.start()
        await self._transactions.start()

    async def close(self) -> None:
        """Disconnect."""
        for client in (self._consumer, self._producer, self._transactions.producer):
            await stop_client(client)

    # --- write -----------------------------------------------------------------------------------

    async def step(self, records: Sequence[ScenarioRecord]) -> WorkerOutput:
        """Write records that cannot lag, and wait for everything they cause.

        Raises:
            Difference: the worker wrote something that these records do not explain.
            WorkerFailed: the worker ended, or its outputs did not arrive in time.
        """
        return await self.take(await self.write(records))

    async def write(
        self, records: Sequence[ScenarioRecord], as_one: bool = False
    ) -> dict[str, ScenarioRecord]:
        """Write records and wait for everything that those cause which cannot lag.

        Args:
            records: the records.
            as_one: whether to write them in one Kafka transaction.

        Returns:
            The records that cannot lag, by position.

        Raises:
            WorkerFailed: the worker ended, or its outputs did not arrive in time.
        """
        if as_one:
            async with self._transactions.producer.transaction():
                positions = await self._write(self._transactions.producer, records)
        else:
            positions = await self._write(self._producer, records)
        written = dict(zip(positions, records, strict=True))
        self._ids |= {position: each.id for position, each in written.items()}
        self._lagging |= {position: each for position, each in written.items() if each.waits_for}
        wanted = {position: each for position, each in written.items() if not each.waits_for}
        await self._await_outputs(wanted)
        return wanted

    def lagging(self) -> list[tuple[str, ScenarioRecord]]:
        """Return the position and the record of the first lagging record of each topic."""
        first: dict[str, tuple[str, ScenarioRecord]] = {}
        for position, record in self._lagging.items():
            first.setdefault(record.topic, (position, record))
        return list(first.values())

    async def come(self, position: str) -> dict[str, ScenarioRecord]:
        """Wait for everything that a lagging record causes once it is pulled.

        Raises:
            WorkerFailed: the worker ended, or the outputs did not arrive in time.
        """
        wanted = {position: self._lagging.pop(position)}
        await self._await_outputs(wanted)
        return wanted

    async def has_come(self, position: str) -> bool:
        """Whether the worker has processed this record by now."""
        await self._read_to_end()
        return position in self._processed()

    async def abort(self, records: Sequence[ScenarioRecord]) -> None:
        """Write records in a Kafka transaction and abort it, so that they must have no effect."""
        await self._transactions.producer.begin_transaction()
        await self._write(self._transactions.producer, records)
        await self._transactions.abort()

    async def ask(self, record: ScenarioRecord, seconds: float) -> dict[str, Any]:
        """Write a command that causes no event, and return its reply.

        Raises:
            WorkerFailed: the worker ended, or did not answer within `seconds`.
        """
        await self._write(self._producer, [record])
        await self._until(lambda: any(key == record.reply for key, _ in self._replies), seconds)
        at = next(i for i, (key, _) in enumerate(self._replies) if key == record.reply)
        return self._replies.pop(at)[1]

    async def _write(self, producer: Any, records: Sequence[ScenarioRecord]) -> list[str]:
        """Write records, and return their positions as topic/partition/offset."""
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
        return [place_of(each) for each in stored]

    # --- read ------------------------------------------------------------------------------------

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            self._worker.check()
            if time.monotonic() > deadline:
                so_far = f"; its events so far: {self._lines}" if self._lines else ""
                raise self._worker.failed(f"gave no answer for {seconds:.0f} s{so_far}")
            await self._read(_POLL_MS)

    async def _read(self, wait_ms: int) -> None:
        for position, records in (await self._consumer.getmany(timeout_ms=wait_ms)).items():
            role = self._roles[position.topic]
            for record in records:
                if role is Role.EVENTS:
                    self._lines += map(json.loads, record.value.splitlines())
                elif role is Role.REPLIES:
                    self._replies.append((record.key.decode(), json.loads(record.value)))
                else:
                    self._records[role].append(record)

    async def _await_outputs(self, wanted: Mapping[str, ScenarioRecord]) -> None:
        """Wait until all outputs of the records are read; the events tell how many there are."""
        asked = [record.reply for record in wanted.values() if record.reply]

        def is_whole() -> bool:
            return (
                self._processed() >= wanted.keys()
                and len(self._replies) >= len(asked) + len(self._refused_sends())
                and all(
                    len(records) >= _count(self._lines, role)
                    for role, records in self._records.items()
                )
            )

        await self._until(is_whole, self._answer_seconds)

    def _processed(self) -> set[str]:
        """Return the positions of the records that the worker has processed, by its events."""
        return {line["by"] for line in self._lines if line["event"] in self._ends(str(line["by"]))}

    def _ends(self, by: str) -> Sequence[str]:
        """Return the kinds of event that show that a record is processed."""
        return _ENDS_CONTROL if self._is_control(by) else _ENDS_PRODUCED

    def _is_control(self, by: str) -> bool:
        return by.split("/", 1)[0] == self._control_topic

    def _refused_sends(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the events of refused sends, each with its reply's key, the message id (R62).

        A send within a command, such as the commit of a transaction, is refused alone. Its event is
        then not the last one of that command.
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
        """Return everything that has been read.

        Raises:
            Difference: some of it does not belong to these records.
        """
        refused = self._refused_sends()
        lines, self._lines = self._lines, []
        replies, self._replies = self._replies, []
        outputs = {role: list(records) for role, records in self._records.items()}
        for records in self._records.values():
            records.clear()
        strange = [line for line in lines if line["by"] not in wanted]
        if strange:
            for line in strange:  # do not wait for it again
                self._lagging.pop(line["by"], None)
            raise Difference(0, "events", f"of {', '.join(wanted)} only", strange)
        position_of = {
            record.reply: position for position, record in wanted.items() if record.reply
        }
        keys = [key for key, _ in replies]
        by_id = [key for key, _ in refused]
        if sorted(keys) != sorted([*position_of, *by_id]):
            raise Difference(0, "replies", [*position_of, *by_id], keys)
        others = [(key, body) for key, body in replies if key not in position_of]
        pairs = []
        for key, line in refused:
            at = next(i for i, (found, _) in enumerate(others) if found == key)
            pairs.append((line, others.pop(at)[1]))
        answers = {position_of[key]: body for key, body in replies if key in position_of}
        return WorkerOutput(lines, outputs, answers, pairs)

    async def started(self) -> WorkerOutput:
        """Return what a worker wrote at its start. Call it after its first reply."""
        await self._read_to_end()
        return await self.take({START: ScenarioRecord("", None, b"")})

    async def left_over(self) -> list[str]:
        """Read to the end of all outputs; drop what is left there, and return a line for each."""
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
        """Read all outputs up to their present ends."""
        ends = await self._consumer.end_offsets(list(self._consumer.assignment()))
        deadline = time.monotonic() + self._answer_seconds
        for position, end in ends.items():
            while await self._consumer.position(position) < end:
                if time.monotonic() > deadline:
                    text = f"left a transaction open in {position.topic}"
                    raise self._worker.failed(text)
                await self._read(_POLL_MS)


def _count(lines: Sequence[Mapping[str, Any]], role: Role) -> int:
    return sum(ROLE_OF.get(line["event"]) is role for line in lines)


ROLE_OF = {name: Role(event.record) for name, event in EVENTS.items() if event.record}
ROLE_OF["unreadable"] = Role.DEAD
"""By event: the topic that gets a record for it."""
