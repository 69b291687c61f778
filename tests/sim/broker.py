"""A virtual Kafka: logs with offsets, transactions, fencing, group offsets, compaction.

Readers see what Kafka shows to consumers with `read_committed`: nothing after the first open
transaction, nothing of an aborted one. Transaction markers use up offsets too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from aiokafka.errors import InvalidTxnState, ProducerFenced

from ringfaust.protocol.records import FetchedRecord, OutRecord

TopicPartition = tuple[str, int]


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction, open until it is committed or aborted."""

    state: str = "open"
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    metadata: str = ""
    """Committed with the offsets."""
    on_commit: list[Callable[[], None]] = field(default_factory=list)


class Log:
    """One partition of a topic."""

    def __init__(self) -> None:
        self._entries: list[tuple[FetchedRecord, Transaction | None] | None] = []
        """None: a marker, or a record that compaction removed."""
        self._open: dict[Transaction, int] = {}
        """By open transaction: the offset of its first record."""
        self.begin = 0
        """The first offset that has not been deleted."""

    @property
    def end(self) -> int:
        """What `end_offsets` returns to a read_committed consumer."""
        return min(self._open.values(), default=len(self._entries))

    def next_offset(self) -> int:
        return len(self._entries)

    def append(self, record: FetchedRecord, transaction: Transaction | None) -> None:
        if transaction is not None:
            self._open.setdefault(transaction, record.offset)
        self._entries.append((record, transaction))

    def mark(self, transaction: Transaction) -> None:
        """Append the marker that ends a transaction."""
        self._open.pop(transaction, None)
        self._entries.append(None)

    def read(self, offset: int, most: int) -> tuple[list[FetchedRecord], int]:
        """Up to `most` committed records from `offset`, and the offset to continue at."""
        found: list[FetchedRecord] = []
        end = self.end
        while offset < end and len(found) < most:
            entry = self._entries[offset]
            offset += 1
            if entry is not None and (entry[1] is None or entry[1].state == "committed"):
                found.append(entry[0])
        return found, offset

    def records(self, begin: int = 0) -> list[FetchedRecord]:
        """The committed records from an offset on."""
        return self.read(begin, len(self._entries))[0]

    def at(self, offset: int) -> FetchedRecord | None:
        """The committed record at that offset, if there is one."""
        found, _ = self.read(offset, 1) if offset < self.end else ([], 0)
        return found[0] if found and found[0].offset == offset else None

    def compact(self, now_ms: int, tombstone_ms: int) -> None:
        """Keep the last record of each key; drop old tombstones."""
        records = self.records()
        last = {record.key: record.offset for record in records}
        for record in records:
            is_old = record.value is None and now_ms - record.timestamp > tombstone_ms
            if record.offset != last[record.key] or is_old:
                self._entries[record.offset] = None


class Broker:
    """All topics, and the transactional ids that may write to them."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.is_reachable = True
        self.reachable_since_ms = now_ms
        self.offsets: dict[TopicPartition, int] = {}
        """The committed offsets of the consumer group."""
        self.metadata: dict[TopicPartition, str] = {}
        self.cluster = "sim"
        """The id of the cluster."""
        self._logs: dict[TopicPartition, Log] = {}
        self._former: dict[TopicPartition, Log] = {}
        self._ids: dict[str, int] = {}
        """By topic: how often it was created again."""
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._late: list[tuple[str, int]] = []
        """Requests to commit that are still on their way: transactional id and epoch."""

    def log(self, topic: str, partition: int) -> Log:
        return self._logs.setdefault((topic, partition), Log())

    def topic_id(self, topic: str) -> str:
        return f"{topic}-{self._ids.get(topic, 0)}"

    def recreate(self, topic: str) -> None:
        """Delete the topic, and create another one with its name."""
        self._ids[topic] = self._ids.get(topic, 0) + 1
        for tp in [tp for tp in self._logs if tp[0] == topic]:
            self._former[tp] = self._logs.pop(tp)
            self.offsets.pop(tp, None)  # Kafka deletes them with the topic

    def former(self, topic: str, partition: int) -> Log:
        """The log that the topic had before it was created again."""
        return self._former.get((topic, partition), Log())

    def was_recreated(self, topic: str) -> bool:
        return topic in self._ids

    def all_logs(self) -> list[Log]:
        return list(self._logs.values())

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[OutRecord],
        transaction: Transaction | None = None,
        *,
        broker_time: bool = False,
        timestamp: int | None = None,
    ) -> None:
        """Append records. `broker_time`: the topic has LogAppendTime."""
        log = self.log(*tp)
        if transaction is not None:
            if transaction.state != "open":
                raise InvalidTxnState
            transaction.logs[tp] = log
        for key, value, headers in records:
            at = self.now_ms if broker_time or timestamp is None else timestamp
            offset = log.next_offset()
            record = FetchedRecord(*tp, offset, at, int(broker_time), key, value, tuple(headers))
            log.append(record, transaction)

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.state = "committed" if commit else "aborted"
        for log in transaction.logs.values():
            log.mark(transaction)
        if commit:
            self.offsets.update(transaction.offsets)
            self.metadata.update(dict.fromkeys(transaction.offsets, transaction.metadata))
            for notify in transaction.on_commit:
                notify()

    # --- transactional producers ----------------------------------------------------------------

    def init_producer(self, transactional_id: str) -> int:
        """Start a producer: fence the earlier owner of the id and abort its open transaction."""
        if (left := self._open.pop(transactional_id, None)) is not None:
            self.end(left, commit=False)
        epoch = self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return epoch

    def begin(self, transactional_id: str, epoch: int) -> Transaction:
        self.fence(transactional_id, epoch)
        return self._open.setdefault(transactional_id, Transaction())

    def commit(self, transactional_id: str, epoch: int) -> None:
        """End the open transaction. Does nothing if there is none, as Kafka does."""
        self.fence(transactional_id, epoch)
        if (transaction := self._open.pop(transactional_id, None)) is not None:
            self.end(transaction, commit=True)

    def delay_commit(self, transactional_id: str, epoch: int) -> None:
        """A request to commit arrives later; its sender does not hear of it."""
        self._late.append((transactional_id, epoch))

    def deliver_late(self) -> None:
        """The delayed requests arrive (R117). Those of an old epoch have no effect."""
        late, self._late = self._late, []
        for transactional_id, epoch in late:
            with suppress(ProducerFenced):
                self.commit(transactional_id, epoch)

    def fence(self, transactional_id: str, epoch: int) -> None:
        if self._epochs[transactional_id] != epoch:
            raise ProducerFenced
