"""Dead and evicted messages: what their records say, and which of them a filter selects.

A message is called dead here whichever of the two topics it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ringfaust.core.address import address_of
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Message
from ringfaust.core.selector import check_selector
from ringfaust.protocol import headers as h
from ringfaust.protocol.cloud_events import is_undecodable
from ringfaust.protocol.records import InRecord, Payload
from ringfaust.protocol.redrive import message_headers

_OF_UNDECODABLE = frozenset((h.REASON, h.TIME_MS, h.SOURCE, h.TEXT))


class DeadMessage(NamedTuple):
    """A message as its dead or evicted record describes it."""

    id: str
    queue: str
    """Empty: the record was undecodable, so it never became a message. Its id is its source."""
    sequence: int
    reason: str
    time_ms: int
    """When it died or was evicted, ms since 1970."""
    record: InRecord

    def said(self, header: str) -> str:
        """The text of a header of the record; empty without it.

        Of an undecodable record the worker has written a few headers; its producer the others.
        """
        if not self.queue and header not in _OF_UNDECODABLE:
            return ""
        return (dict(self.record.headers).get(header) or b"").decode(errors="backslashreplace")

    @property
    def handovers(self) -> int:
        """How often it was handed to a consumer."""
        return int(self.said(h.HANDOVERS) or 0)

    @property
    def redrives(self) -> int:
        """How often it was sent again before."""
        return int(self.said(h.REDRIVES) or 0)

    @property
    def enqueued_ms(self) -> int:
        """When it entered its queue, in ms since 1970; if it never did: when it died."""
        return int(self.said(h.ENQUEUED_MS) or self.time_ms)

    @classmethod
    def read(cls, record: InRecord) -> DeadMessage:
        """Read a record of the dead or evicted topic."""
        headers = dict(record.headers)
        is_message = not is_undecodable(record.headers)
        return cls(
            headers[h.ID if is_message else h.SOURCE].decode(),
            headers[h.QUEUE].decode() if is_message else "",
            int(headers[h.SEQUENCE]) if is_message else 0,
            headers[h.REASON].decode(),
            int(headers[h.TIME_MS]),
            record,
        )

    @classmethod
    def read_all(cls, records: Iterable[InRecord]) -> Iterator[DeadMessage]:
        """Read records of the dead or evicted topic, without those that no worker has written."""
        for record in records:
            with suppress(LookupError, ValueError, TypeError, AttributeError):
                yield cls.read(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """Which dead or evicted messages are meant. A filter that is empty or 0 is off."""

    ids: Sequence[str] = ()
    reason: str = ""
    since_ms: int = 0
    """Messages that died or were evicted at or after this time, ms since 1970."""
    selector: str = ""
    queue: str = ""
    """The queue they were in, or a pattern. The name of an address matches all of its queues."""


class DeadMatcher:
    """Tells whether a filter lets a message pass.

    Raises:
        BadSelector: the selector is not valid.
    """

    def __init__(self, wanted: DeadFilter) -> None:
        self._wanted = wanted
        self._ids = frozenset(wanted.ids)
        self._selector = check_selector(wanted.selector) if wanted.selector else None

    def is_named(self, dead: DeadMessage) -> bool:
        """Whether its id is among the wanted ones, or none are named."""
        return not self._ids or dead.id in self._ids

    def matches(self, dead: DeadMessage) -> bool:
        """Whether it passes every filter."""
        wanted = self._wanted
        if not self.is_named(dead) or dead.time_ms < wanted.since_ms:
            return False
        if wanted.queue and not _is_in(dead.queue, wanted.queue):
            return False
        if wanted.reason and dead.reason != wanted.reason:
            return False
        if self._selector is None:
            return True
        return bool(dead.queue) and self._selector.matches(_message(dead))


def _is_in(queue: str, pattern: str) -> bool:
    return queue == pattern or Catalog({pattern: {}}, {}).declares(address_of(queue) or queue)


def _message(dead: DeadMessage) -> Message:
    """Rebuild the message that the selector tests."""
    record = dead.record
    headers = dict(record.headers)
    own_headers = tuple(message_headers(record.headers))
    payload = Payload(record.key, record.value, own_headers, headers[h.SOURCE].decode())
    return Message(
        dead.id, dead.sequence, 0, int(headers[h.PRIORITY]), int(headers[h.ENQUEUED_MS]), 0, 0,
        headers.get(h.GROUP, b"").decode(), int(headers.get(h.ATTEMPT, b"0")),
        int(headers[h.HANDOVERS]), (), 0, payload,
    )  # fmt: skip
