"""Records: what a payload is, what goes out, and by which role a topic is named."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

Headers = Sequence[tuple[str, bytes]]


class Role(StrEnum):
    """What a topic is for; `topics/` has a declaration for each."""

    PRODUCER = "producer"
    CONTROL = "control"
    HOP = "hop"
    DISPATCHED = "dispatched"
    EVICTED = "evicted"
    DEAD = "dead"
    EVENTS = "events"
    REPLIES = "replies"
    CHANGELOG = "changelog"


class InRecord(Protocol):
    """What we read of a consumed record; aiokafka's ConsumerRecord is one."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """ms since 1970."""
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Payload(NamedTuple):
    """The producer's record: never opened, passed on as it came (architecture 10)."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    """Without ours."""
    source: str
    """Where it came from: topic/partition/offset."""


OutRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""A record to be written: key, value, headers; in the shape that a Kafka client takes."""
