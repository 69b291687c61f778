"""What a worker writes as spans: the processing of each traced message, and its eviction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ringfaust.core.effects import Evicted
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord, place_of
from ringfaust.spans import TRACEPARENT, Spans


class WorkerSpans:
    """The spans of one partition. They are written once a batch is committed.

    Messages whose sender did not trace them have none.
    """

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._read: dict[str, tuple[str, Any]] = {}
        """The traced messages of the batch by id: their topic and context."""
        self._committing: tuple[dict[str, tuple[str, Any]], int] = ({}, 0)

    def watch(self, records: Iterable[FetchedRecord]) -> Iterator[FetchedRecord]:
        """Pass on the records of a batch, and note which messages are traced."""
        for record in records:
            if any(name == TRACEPARENT for name, _ in record.headers):
                named = dict(record.headers)
                source = place_of(record).encode()
                id_ = named.get(h.ID) or named.get(h.SOURCE) or source
                self._read[id_.decode(errors="replace")] = (
                    record.topic, self._spans.context_of(named.items()),
                )  # fmt: skip
            yield record

    def commit(self, now_ms: int) -> None:
        """Keep what the batch whose commit begins has read."""
        self._committing = (self._read, now_ms)
        self._read = {}

    def committed(self, evictions: Sequence[Evicted], now_ms: int) -> None:
        """Write the spans of the batch that is committed, and of its evictions."""
        read, began_ms = self._committing
        self._committing = ({}, 0)
        for message_id, (topic, context) in read.items():
            self._spans.write(
                "process", topic, context, start_ms=began_ms, end_ms=now_ms, message=message_id
            )
        for gone in evictions:
            context = self._spans.context_of(gone.message.payload.headers)
            if self._spans.is_valid(context):
                _, cause = read.get(gone.cause, ("", None))
                self._spans.write(
                    "evict", gone.queue, context, start_ms=gone.at_ms, end_ms=gone.at_ms,
                    linked=cause, message=gone.message.id, reason=str(gone.reason),
                    cause=gone.cause, ring_size=gone.ring_size,
                    age_ms=gone.at_ms - gone.message.enqueued_ms,
                )  # fmt: skip
