"""What a client sends: a message with what a producer may say about it, as a Kafka record."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypedDict, Unpack

from aiokafka.structs import RecordMetadata

from ringfaust.client.connection import OutgoingRecord, refuse_unknown
from ringfaust.client.errors import BadArgument
from ringfaust.client.message import Scalar
from ringfaust.errors import ProtocolError
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers
from ringfaust.protocol.routes import read_send


class SendOptions(TypedDict, total=False):
    """What a producer may say about a message; see docs/protocol.md, Producing."""

    key: str | bytes | None
    """The record's key: text is written as UTF-8. Chooses the partition, as with any producer."""
    id: str
    """The message id, by which it is settled and told; default: topic/partition/offset."""
    priority: int
    """0 to 9, 9 first; default 4 (R14)."""
    group: str
    """The message group (R14)."""
    delay_ms: int
    """Deliver so long after the send (R30)."""
    deliver_at_ms: int
    """Deliver at that time, ms since 1970; wins over the delay."""
    ttl_ms: int
    """Expires so long after the send (R50)."""
    expires_at_ms: int
    """Expires at that time, ms since 1970; wins over the ttl."""
    properties: Mapping[str, Scalar]
    """What selectors see, with their types (R15)."""
    headers: Mapping[str, str | bytes]
    """Headers of your own; text is written as UTF-8."""
    queue: str
    """Names the queue, where the route's template says `{header:ringfaust-queue}`."""
    persistent: bool
    """False: a crash may lose it, and it costs less (R82). Default True."""
    xid: str
    """The distributed transaction that it waits for (R81)."""
    partition: int
    """Of the topic, in place of the one that the key chooses."""


@dataclass(slots=True)
class _RecordAsRead:
    """A record as a worker would find it, to be checked by the worker's own reading."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    timestamp_type: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message on its way. Relative times count from its making, also if it is written later."""

    record: OutgoingRecord
    """Without what time changes."""
    id: str
    """Empty: none was given."""
    delay_ms: int | None
    ttl_ms: int | None
    made_s: float
    """On the monotonic clock: a wrong or changed wall clock moves nothing."""

    @classmethod
    def of(cls, topic: str, value: str | bytes | None, **options: Unpack[SendOptions]) -> Self:
        """A message as `send` is given it.

        Raises:
            BadArgument: a worker would not take it.
        """
        refuse_unknown(options, SendOptions)
        key = options.get("key")
        if value is None and key is None:
            raise BadArgument("a message needs a value, or at least a key")
        sent = cls(
            record=OutgoingRecord(
                topic, _raw(value), _raw(key), _headers(options), options.get("partition")
            ),
            id=options.get("id", ""),
            delay_ms=options.get("delay_ms"),
            ttl_ms=options.get("ttl_ms"),
            made_s=time.monotonic(),
        )
        found = sent.after(0)
        try:
            read_send(_RecordAsRead(found.key, found.value, found.headers), "any", "any", 0)
        except ProtocolError as error:
            raise BadArgument(str(error)) from None
        return sent

    def with_id(self, new_id: str) -> OutgoingMessage:
        """The same with an id, if it has none."""
        if self.id:
            return self
        header = (h.ID, new_id.encode())
        record = self.record._replace(headers=(*self.record.headers, header))
        return replace(self, record=record, id=new_id)

    def now(self) -> OutgoingRecord:
        """The record, to be written some time after its making."""
        return self.after(int((time.monotonic() - self.made_s) * 1000))

    def after(self, passed_ms: int) -> OutgoingRecord:
        """The record, to be written so long after its making: with what is left of its times."""
        if self.delay_ms is None and self.ttl_ms is None:
            return self.record
        headers = list(self.record.headers)
        if self.delay_ms is not None:
            headers.append((h.DELAY_MS, b"%d" % max(self.delay_ms - passed_ms, 0)))
        if self.ttl_ms is not None and self.ttl_ms > 0:  # none is none, and not past (R50)
            headers.append((h.TTL_MS, b"%d" % max(self.ttl_ms - passed_ms, 1)))
        return self.record._replace(headers=headers)

    def id_at(self, stored: RecordMetadata) -> str:
        """The message id, given where the record is."""
        return self.id or f"{stored.topic}/{stored.partition}/{stored.offset}"


def _raw(given: str | bytes | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _headers(options: SendOptions) -> tuple[tuple[str, bytes], ...]:
    theirs: Mapping[str, str | bytes] = options.get("headers", {})
    if ours := [name for name in theirs if name.startswith(h.PREFIX)]:
        raise BadArgument(f"headers: {ours[0]} is one of ours; there is an argument for each")
    said: dict[str, Any] = {
        h.ID: options.get("id"),
        h.PRIORITY: options.get("priority"),
        h.GROUP: options.get("group"),
        h.DELIVER_AT_MS: options.get("deliver_at_ms"),
        h.EXPIRES_AT_MS: options.get("expires_at_ms"),
        h.QUEUE: options.get("queue"),
        h.XID: options.get("xid"),
        h.PROPERTIES: _json(options["properties"]) if "properties" in options else None,
        h.DELIVERY_MODE: None if options.get("persistent", True) else "non_persistent",
    }
    return (
        *((name, _raw(value) or b"") for name, value in theirs.items()),
        *((name, str(value).encode()) for name, value in said.items() if value is not None),
    )


def _json(properties: Mapping[str, Scalar]) -> str:
    try:
        return json.dumps(dict(properties), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise BadArgument(f"properties: text, numbers, truth values or None: {error}") from None
