"""Records as ringfaust reads and writes them, and the roles of topics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from ringfaust.core.selector import Untyped
from ringfaust.protocol.headers import PREFIX, PROPERTIES

Headers = Sequence[tuple[str, Any]]
"""Names and values. A value is bytes, or None, which Kafka allows."""
NOT_A_ROW = (ValueError, OverflowError, TypeError, KeyError, AttributeError, RecursionError)
"""What a row of JSON raises if it is not valid, lacks a field, or has one of another type."""


class Role(StrEnum):
    """What a topic is for. `topics/` declares each."""

    PRODUCER = "producer"
    CONTROL = "control"
    HOP = "hop"
    DISPATCHED = "dispatched"
    EVICTED = "evicted"
    DEAD = "dead"
    EVENTS = "events"
    REPLIES = "replies"
    CHANGELOG = "changelog"
    STATUS = "status"
    CONFIGURATION = "configuration"


class Placed(Protocol):
    """What has a position in Kafka, such as a record."""

    @property
    def topic(self) -> str:
        """Where it is."""

    @property
    def partition(self) -> int:
        """Of the topic."""

    @property
    def offset(self) -> int:
        """In the partition."""


def place_of(record: Placed) -> str:
    """The position of a record, as topic/partition/offset."""
    return f"{record.topic}/{record.partition}/{record.offset}"


class InRecord(Placed, Protocol):
    """The parts of a consumed record that ringfaust reads. aiokafka's ConsumerRecord has them."""

    @property
    def timestamp(self) -> int:
        """In ms since 1970."""

    @property
    def timestamp_type(self) -> int:
        """0: of the producer; 1: of the broker."""

    @property
    def key(self) -> bytes | None:
        """What chose the partition."""

    @property
    def value(self) -> bytes | None:
        """The body."""

    @property
    def headers(self) -> Headers:
        """In the order of the record."""


class FetchedRecord(NamedTuple):
    """An `InRecord`, as a processor takes it: to create and to read it costs little."""

    topic: str = ""
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    """ms since 1970."""
    timestamp_type: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


RECORD_BYTES = 256
"""About what the objects of a `FetchedRecord` take, besides what they contain and its headers."""
HEADER_BYTES = 144
"""The same of one header."""


class Payload(NamedTuple):
    """The producer's record. It is passed on unchanged."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    """A tuple. Of ringfaust's headers it only has those in `headers.KEPT`."""
    source: str
    """Its topic/partition/offset."""

    def properties(self) -> Mapping[str, Any]:
        """The properties that selectors see, by name (R15).

        A producer's header is untyped text, which may also be read as a number; one that is not
        UTF-8 is left out. Properties in the header `ringfaust-properties` have JSON's types and
        take precedence.
        """
        return _properties(self.headers)

    def is_named(self, message_id: str) -> bool:
        """Whether the producer gave the message this id; the default is the source (ADR 11)."""
        return message_id != self.source


_KNOWN = 128
"""Messages whose properties are cached: those at the front are read again and again."""


@lru_cache(_KNOWN)
def _properties(headers: Headers) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    typed: bytes = b"{}"
    for name, value in headers:
        if name == PROPERTIES:
            typed = value
        elif value is not None and not name.startswith(PREFIX):
            try:
                found[name] = Untyped(value.decode())
            except UnicodeDecodeError:
                continue
    found.update(read_json(_JSON, typed))
    return found


_JSON: Final = json.JSONDecoder()


def read_json(decoder: json.JSONDecoder, raw: bytes) -> Any:
    """Decode JSON in UTF-8. An object without spaces around it takes a third of the time.

    Raises:
        ValueError: it is invalid.
    """
    text = raw.decode()
    if text.startswith("{"):
        found, end = decoder.raw_decode(text)
        if end == len(text):
            return found
    return decoder.decode(text)


class OutgoingRecord(NamedTuple):
    """A record to write, and where to."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    """None: the producer chooses it by the key."""


OutRecord = tuple[bytes | None, bytes | None, list[tuple[str, Any]]]
"""A record to write: key, value and headers, as a Kafka client takes them."""
