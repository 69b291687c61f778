"""Records: what a payload is, what goes out, and by which role a topic is named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from ringfaust.core.selector import Untyped
from ringfaust.protocol.headers import PREFIX, PROPERTIES

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
    """A tuple, without ours but for those of `headers.KEPT`."""
    source: str
    """Where it came from: topic/partition/offset."""

    def properties(self) -> Mapping[str, Any]:
        """What selectors ask for (R15): text, numbers and truth values by name.

        The producer's headers are text that may be a number too; one that is no UTF-8 is none.
        Those of the header `ringfaust-properties` are what JSON says they are, and win.
        """
        return _properties(self.headers)


_KNOWN = 128
"""Messages whose properties are kept: those that stand in front are asked for again and again."""


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
    found.update(json.loads(typed))
    return found


OutRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]
"""A record to be written: key, value, headers; in the shape that a Kafka client takes."""
