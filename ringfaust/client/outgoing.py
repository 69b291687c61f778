"""Messages to send: a value and its options, as a Kafka record with headers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypedDict, Unpack

from aiokafka.structs import RecordMetadata

from ringfaust.client.connection import refuse_unknown
from ringfaust.client.errors import BadArgument, whole
from ringfaust.client.message import Scalar
from ringfaust.client.owner import OWNER
from ringfaust.errors import ProtocolError
from ringfaust.protocol import headers as h
from ringfaust.protocol.records import FetchedRecord, OutgoingRecord, place_of
from ringfaust.protocol.routes import read_send
from ringfaust.spans import open_spans

Value = str | bytes | Mapping[str, Any] | list[Any] | None
"""What a program may send. Text is UTF-8 encoded, mappings and lists become JSON."""


def write_json(value: object) -> bytes:
    """Serialize a value as JSON.

    Raises:
        BadArgument: JSON has no form for it.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise BadArgument(f"value: {error}; pass text, bytes, or what JSON can express") from None


class SendOptions(TypedDict, total=False):
    """Options of a message to send; see docs/protocol.md, Producing."""

    key: str | bytes | None
    """The record's key, which chooses the partition as with any producer; text is UTF-8 encoded."""
    id: str
    """The message id, used in settles and events; default topic/partition/offset."""
    priority: int
    """0 to 9; 9 is delivered first; default 4 (R14)."""
    group: str
    """The message group (R14)."""
    delay_ms: int
    """Time from the send to the delivery, in milliseconds (R30)."""
    deliver_at_ms: int
    """Time of delivery, in milliseconds since 1970; overrides `delay_ms`."""
    ttl_ms: int
    """Time from the send to the expiry, in milliseconds; 0 for never (R50)."""
    expires_at_ms: int
    """Time of expiry, in milliseconds since 1970; overrides `ttl_ms`."""
    properties: Mapping[str, Scalar]
    """Typed properties that selectors test (R15)."""
    headers: Mapping[str, str | bytes]
    """The producer's own headers; text is UTF-8 encoded."""
    queue: str
    """The queue's name, for routes with the template `{header:ringfaust-queue}`."""
    persistent: bool
    """False makes the message cheaper, but a crash may lose it (R82). Default True."""
    xid: str
    """The distributed transaction to which the send belongs (R81)."""
    owner: str
    """Who began that transaction; default this process. See `TwoPhaseOptions.owner`."""
    partition: int
    """The partition of the topic, instead of the one that the key chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to send. Its delay and ttl count from its creation, even if it is written later."""

    record: OutgoingRecord
    """The record without the headers that depend on the time of writing."""
    id: str
    """The message id; empty if none was given."""
    delay_ms: int | None
    ttl_ms: int | None
    created_s: float
    """The time of creation on the monotonic clock, which changes of the wall clock do not move."""

    @classmethod
    def of(
        cls,
        topic: str,
        value: Value,
        serializer: Callable[[Any], bytes] = write_json,
        **options: Unpack[SendOptions],
    ) -> Self:
        """Build a message from the arguments of `send`.

        `serializer` turns a value into bytes that is neither text nor bytes.

        Raises:
            BadArgument: a worker would not accept the message.
            TypeError: there is no such option.
        """
        refuse_unknown(options, SendOptions)
        key = options.get("key")
        if not (value is None or isinstance(value, str | bytes)):
            value = serializer(value)
        if value is None and key is None:
            raise BadArgument("a message needs a value, or at least a key")
        sent = cls(
            record=OutgoingRecord(
                topic,
                _raw("value", value),
                _raw("key", key),
                _headers(options),
                options.get("partition"),
            ),
            id=options.get("id", ""),
            delay_ms=_duration("delay_ms", options.get("delay_ms")),
            ttl_ms=_duration("ttl_ms", options.get("ttl_ms")),
            created_s=time.monotonic(),
        )
        found = sent.after(0)
        as_read = FetchedRecord(key=found.key, value=found.value, headers=found.headers)
        try:
            read_send(as_read, "any", "any", 0)
        except ProtocolError as error:
            raise BadArgument(str(error)) from None
        return sent

    def with_id(self, new_id: str) -> OutgoingMessage:
        """Return the message with this id, unless it has one already."""
        if self.id:
            return self
        header = (h.ID, new_id.encode())
        record = self.record._replace(headers=(*self.record.headers, header))
        return replace(self, record=record, id=new_id)

    def now(self) -> OutgoingRecord:
        """Return the record to write now, with what is left of its delay and ttl."""
        return self.after(int((time.monotonic() - self.created_s) * 1000))

    def after(self, passed_ms: int) -> OutgoingRecord:
        """Return the record to write `passed_ms` milliseconds after the message's creation."""
        if self.delay_ms is None and self.ttl_ms is None:
            return self.record
        headers = list(self.record.headers)
        if self.delay_ms is not None:
            headers.append((h.DELAY_MS, b"%d" % max(self.delay_ms - passed_ms, 0)))
        if self.ttl_ms is not None and self.ttl_ms > 0:  # 0 means never, not expired (R50)
            headers.append((h.TTL_MS, b"%d" % max(self.ttl_ms - passed_ms, 1)))
        return self.record._replace(headers=headers)

    def id_at(self, stored: RecordMetadata) -> str:
        """Return the message id, given the position at which the record is stored."""
        return self.id or place_of(stored)


def _raw(name: str, given: object) -> bytes | None:
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as error:  # half a surrogate pair
            raise BadArgument(f"{name}: {error}") from None
    if given is None or isinstance(given, bytes):
        return given
    raise BadArgument(f"{name} must be text or bytes, not {given!r}")


def _duration(name: str, given: int | None) -> int | None:
    return None if given is None else whole(name, given, None)


def _headers(options: SendOptions) -> tuple[tuple[str, bytes], ...]:
    theirs: Mapping[str, str | bytes] = options.get("headers", {})
    if (spans := open_spans()) is not None:
        theirs = spans.with_context(theirs)
    if ours := [name for name in theirs if name.startswith(h.PREFIX)]:
        raise BadArgument(f"headers: {ours[0]} is reserved; use the option for it instead")
    said: dict[str, Any] = {
        h.ID: options.get("id"),
        h.PRIORITY: options.get("priority"),
        h.GROUP: options.get("group"),
        h.DELIVER_AT_MS: options.get("deliver_at_ms"),
        h.EXPIRES_AT_MS: options.get("expires_at_ms"),
        h.QUEUE: options.get("queue"),
        h.XID: options.get("xid"),
        h.XID_OWNER: options.get("owner", OWNER) if options.get("xid") else None,
        h.PROPERTIES: _json(options["properties"]) if "properties" in options else None,
        h.DELIVERY_MODE: None if options.get("persistent", True) else "non_persistent",
    }
    return (
        *((name, _raw(f"headers: {name}", value) or b"") for name, value in theirs.items()),
        *((name, _raw(name, str(each)) or b"") for name, each in said.items() if each is not None),
    )


def _json(properties: Mapping[str, Scalar]) -> str:
    try:
        return json.dumps(dict(properties), allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise BadArgument(
            f"properties: values must be text, numbers, booleans or None: {error}"
        ) from None
