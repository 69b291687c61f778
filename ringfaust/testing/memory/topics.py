"""The topics of a `MemoryBroker`: logs of records, and who waits for more of them."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence

from ringfaust.protocol.partitioner import partition_of
from ringfaust.protocol.records import FetchedRecord, OutgoingRecord
from ringfaust.protocol.routes import LOG_APPEND_TIME

Place = tuple[str, int]
"""A topic and one of its partitions."""


class MemoryTopics:
    """Topics in memory. Clients of other threads share them: hold `lock` for more than one call."""

    def __init__(self, now_ms: int) -> None:
        self.lock = threading.RLock()
        self.now_ms = now_ms
        """The time that records get, in ms since 1970."""
        self.partitions: dict[str, int] = {}
        """Of each topic."""
        self._logs: dict[Place, list[FetchedRecord]] = {}
        self._watchers: set[Callable[[], None]] = set()

    def create(self, topic: str, partitions: int) -> None:
        """Create an empty topic, unless it exists."""
        if self.partitions.setdefault(topic, partitions) == partitions:
            for number in range(partitions):
                self._logs.setdefault((topic, number), [])

    def append(self, record: OutgoingRecord) -> FetchedRecord:
        """Store a record of an existing topic. Without a partition the key decides, as in Kafka."""
        number = record.partition
        if number is None:
            count = self.partitions[record.topic]
            number = 0 if record.key is None else partition_of(record.key, count)
        log = self._logs[record.topic, number]
        stored = FetchedRecord(
            record.topic, number, len(log), self.now_ms, LOG_APPEND_TIME,
            record.key, record.value, tuple(record.headers),
        )  # fmt: skip
        log.append(stored)
        return stored

    def read(self, place: Place, offset: int, most: int | None = None) -> Sequence[FetchedRecord]:
        """Return the records from an offset on, at most so many of them."""
        with self.lock:
            return self._logs[place][offset : None if most is None else offset + most]

    def end(self, place: Place) -> int:
        """Return the offset of the next record."""
        with self.lock:
            return len(self._logs[place])

    def since(self, place: Place, time_ms: int) -> int:
        """Return the offset of the first record of that time or later."""
        with self.lock:
            return bisect_left(self._logs[place], time_ms, key=lambda each: each.timestamp)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after each change, from whatever thread makes it."""
        with self.lock:
            self._watchers.add(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Undo `watch`."""
        with self.lock:
            self._watchers.discard(watcher)

    def notify(self) -> None:
        """Tell who waits that there may be more to read."""
        with self.lock:
            watchers = list(self._watchers)
        for watcher in watchers:
            watcher()
