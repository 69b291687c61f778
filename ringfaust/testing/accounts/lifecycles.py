"""Parts of the book of accounts: lives of messages, copies, open transactions, and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ringfaust.protocol import headers as h
from ringfaust.protocol.records import InRecord

STATES = ("ready", "delivering", "scheduled")
_PREFIX_CHARS = len(h.PREFIX)


class MessageLifecycles:
    """What one queue holds, as its events tell."""

    __slots__ = ("delivering", "open", "scheduled")

    def __init__(self) -> None:
        self.open: dict[int, tuple[str, str]] = {}
        """(id, source) by sequence."""
        self.delivering: dict[int, int] = {}
        """Delivery number by sequence."""
        self.scheduled: set[int] = set()

    def state(self, sequence: int) -> str:
        """Where a message stands that it holds."""
        if sequence in self.delivering:
            return "delivering"
        return "scheduled" if sequence in self.scheduled else "ready"


class AddressCopies:
    """Of a record that was sent to an address: a copy in each of its queues, a fate for each."""

    def __init__(self) -> None:
        self._open: dict[str, Counter[str]] = {}

    def explain(self, source: str) -> None:
        """The record has come to something, be it that no queue wanted it."""
        self._open.setdefault(source, Counter())

    def add(self, source: str, queue: str) -> None:
        """A copy has entered a queue."""
        self.explain(source)
        self._open[source][queue] += 1

    def end(self, source: str, queue: str) -> None:
        """A copy has come to its end; the topics may tell this before they tell that it entered."""
        self.explain(source)
        self._open[source][queue] -= 1

    def __contains__(self, source: str) -> bool:
        return source in self._open

    def unsettled(self) -> Iterator[tuple[str, str, int]]:
        """Source, queue, and how many copies have no fate; negative: they have too many."""
        for source, by_queue in self._open.items():
            for queue, count in by_queue.items():
                if count:
                    yield source, queue, count


class OpenXids:
    """Records that wait for the decision about their transaction (R81)."""

    def __init__(self) -> None:
        self._pending: dict[tuple[int, str], list[str]] = {}
        self._refused: Counter[str] = Counter()

    def wait(self, partition: int, xid: str, source: str) -> None:
        """A record's send waits."""
        self._pending.setdefault((partition, xid), []).append(source)

    def refused(self, by: str) -> None:
        """A command has refused something: a commit one of its sends."""
        self._refused[by] += 1

    def decide(self, partition: int, xid: str, by: str) -> tuple[list[str], int]:
        """The records that waited, and how many of them the decision's command has refused."""
        return self._pending.pop((partition, xid), []), self._refused.pop(by, 0)

    def left(self) -> Iterator[str]:
        """The records that wait still."""
        for sources in self._pending.values():
            yield from sources


def ids_of(listed: list[str] | Mapping[str, list[str]]) -> list[str]:
    """Ids of one state; those delivering come by consumer."""
    if isinstance(listed, list):
        return listed
    return [message_id for ids in listed.values() for message_id in ids]


def unreadable_of(source: str) -> tuple[str, int]:
    """The list for it: one for each partition of the inputs.

    Those are in order; but who forwards one to the hop and who owns one write to the dead topic and
    the events side by side.
    """
    topic, partition, _ = source.rsplit("/", 2)
    return f"dead, what of {topic} was unreadable", int(partition)


def foreign(record: InRecord) -> tuple[tuple[str, bytes], ...]:
    """The producer's own headers."""
    if not record.headers:
        return ()
    return tuple(
        [
            pair
            for pair in record.headers
            if pair[0][:_PREFIX_CHARS] != h.PREFIX or pair[0] in h.KEPT
        ]
    )


def name_of(queue: str, sequence: int, delivery: int = 0, consumer: str = "") -> str:
    """A message, or one delivery of it, in words."""
    name = f"message {sequence} of {queue}"
    return f"delivery {delivery} ({name}, to {consumer or 'nobody'})" if delivery else name
