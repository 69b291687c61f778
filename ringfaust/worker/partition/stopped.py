"""Which errors stop a partition, and what is said about one that has stopped (R123)."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from ringfaust.errors import BrokenAccounts, UnknownRowVersion
from ringfaust.protocol.records import FetchedRecord, place_of
from ringfaust.transactional.writer import TOO_LARGE
from ringfaust.worker.interfaces import StateLost

_NOT_ALLOWED = (
    ClusterAuthorizationFailedError, GroupAuthorizationFailedError, TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)  # fmt: skip
_LASTING = (*TOO_LARGE, *_NOT_ALLOWED, InvalidTopicError, PolicyViolationError)
"""Errors of the brokers that come again, as long as nobody changes something."""

_REMEDIES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (TOO_LARGE, "raise max.message.bytes of the topic that refuses the record, then retry"),
    (_NOT_ALLOWED, "grant what `ringfaust doctor` lists as missing, then retry"),
    ((StateLost,), "restore what is missing, as the reason says, then retry"),
    ((UnknownRowVersion,), "run a worker that knows this version"),
    ((BrokenAccounts,), "keep the topics and the data folder as they are, and report the error"),
)
_TEXT_CHARS = 500


class Stopped(NamedTuple):
    """Why a partition has stopped, and where."""

    error: Exception
    record: FetchedRecord | None
    """The input that it cannot get past; None: it is not an input's fault."""
    since_ms: int
    topic_id: str
    """The id of that input's topic; empty: not known."""

    @property
    def at(self) -> str:
        """The position of that input: topic/partition/offset. Empty: there is none."""
        return place_of(self.record) if self.record else ""

    @property
    def reason(self) -> str:
        """What went wrong."""
        text, kind = str(self.error), type(self.error).__name__
        return (text if text.startswith("[") or kind in text else f"{kind}: {text}")[:_TEXT_CHARS]

    @property
    def remedy(self) -> str:
        """What to do."""
        for kinds, remedy in _REMEDIES:
            if isinstance(self.error, kinds):
                return f"{remedy}, or skip the record" if self.at and "retry" in remedy else remedy
        return "correct the cause and retry" + (", or skip the record" if self.at else "")

    def __str__(self) -> str:
        where = f"at {self.at}" if self.at else "at no record"
        return f"stopped {where}: {self.reason}"


def is_passing(error: Exception) -> bool:
    """Whether the same work may succeed later, though nobody has changed anything."""
    return isinstance(error, TimeoutError | OSError | KafkaError) and not isinstance(
        error, _LASTING
    )
