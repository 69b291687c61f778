"""Parts of the reconciler: records of former topics, of addresses, and of open transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ringfaust.protocol import headers as h
from ringfaust.protocol.records import Headers

_PREFIX_CHARS = len(h.PREFIX)


class FormerMessages:
    """Messages from topics that were deleted and created again: their positions were used twice."""

    def __init__(self) -> None:
        self._until: dict[str, list[tuple[int, str]]] = {}

    def add(self, queue: str, last_sequence: int, prefix: str) -> None:
        """Note that the queue's messages up to a sequence are former if their source begins so."""
        self._until.setdefault(queue, []).append((last_sequence, prefix))

    def has(self, queue: str, sequence: int, source: str) -> bool:
        """Whether the message came from such a topic."""
        former = self._until.get(queue, ())
        return any(0 < sequence <= last and source.startswith(prefix) for last, prefix in former)


class AddressCopies:
    """Records that were sent to an address: each queue has a copy, and each copy an outcome."""

    def __init__(self) -> None:
        self._open: dict[str, Counter[str]] = {}

    def explain(self, source: str) -> None:
        """Note that the record was processed, even if no queue took a copy."""
        self._open.setdefault(source, Counter())

    def add(self, source: str, queue: str) -> None:
        """Note that a copy was added to a queue."""
        self.explain(source)
        self._open[source][queue] += 1

    def end(self, source: str, queue: str) -> None:
        """Note the outcome of a copy. The topics may report it before they report the `add`."""
        self.explain(source)
        self._open[source][queue] -= 1

    def forget(self, prefix: str) -> None:
        """Forget the records whose source has this prefix."""
        for source in [each for each in self._open if each.startswith(prefix)]:
            del self._open[source]

    def __contains__(self, source: str) -> bool:
        """Whether the record was sent to an address and processed."""
        return source in self._open

    def unsettled(self) -> Iterator[tuple[str, str, int]]:
        """Yield source, queue and the number of copies without outcome; negative if too many."""
        for source, by_queue in self._open.items():
            for queue, count in by_queue.items():
                if count:
                    yield source, queue, count


class OpenXids:
    """Sends that wait for the decision about their distributed transaction (R81)."""

    def __init__(self) -> None:
        self._pending: dict[tuple[int, str], list[str]] = {}
        self._refused: Counter[str] = Counter()

    def wait(self, partition: int, xid: str, source: str) -> None:
        """Note that the send of a record waits."""
        self._pending.setdefault((partition, xid), []).append(source)

    def refused(self, by: str) -> None:
        """Note that a command refused something, as a commit may refuse one of its sends."""
        self._refused[by] += 1

    def decide(self, partition: int, xid: str, by: str) -> tuple[list[str], int]:
        """Return the records that waited, and how many of them the command `by` refused."""
        return self._pending.pop((partition, xid), []), self._refused.pop(by, 0)

    def left(self) -> Iterator[str]:
        """Yield the records that still wait."""
        for sources in self._pending.values():
            yield from sources


def ids_of(listed: list[str] | Mapping[str, list[str]]) -> list[str]:
    """Return the message ids of one state from a `list` reply, which groups some by consumer."""
    if isinstance(listed, list):
        return listed
    return [message_id for ids in listed.values() for message_id in ids]


def undecodable_list(source: str) -> tuple[str, int]:
    """Return the key of the list for an undecodable record: one list per input partition.

    Only within a partition is their order known: the task that repartitions a record and the task
    that owns its queue write to the dead topic and the events independently.
    """
    topic, partition, _ = source.rsplit("/", 2)
    return f"dead (undecodable records of {topic})", int(partition)


def producer_headers(headers: Headers) -> tuple[tuple[str, bytes], ...]:
    """Return the producer's own headers."""
    if not headers:
        return ()
    return tuple(
        [pair for pair in headers if pair[0][:_PREFIX_CHARS] != h.PREFIX or pair[0] in h.KEPT]
    )
