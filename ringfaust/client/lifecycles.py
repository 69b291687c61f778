"""What happened to single messages, put together from the lines of the events topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

MOST_EVENTS = 10_000
"""The most events that a search returns."""
_GAP = b'"event":"gap"'

Event = Mapping[str, Any]
"""A line of the events topic, see docs/protocol.md."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """What happened to one message in one queue."""

    queue: str
    sequence: int
    """Its number in the queue; 0: it never entered it."""
    id: str
    source: str
    """Its record: topic/partition/offset; empty if it entered before the time searched."""
    events: tuple[Event, ...]
    """In order."""
    redrives: int = 0
    """How often it had been redriven when it was sent, as far as its record still says so."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The answer to: where did my message go?"""

    lifecycles: tuple[Lifecycle, ...]
    """One for each queue it was in, and for each time it was sent; empty: never seen."""
    since_ms: int
    """Events before this time were not searched."""
    records: int
    """How many records of the events topic were searched."""
    hint: str
    """For a message that was never seen: what is known about its record; may be empty."""
    left_out: tuple[str, ...] = ()
    """What was not looked at, although it may belong to the answer."""


def place_of(source: str) -> tuple[str, int, int] | None:
    """Read topic/partition/offset; None if it is not of that form."""
    topic, _, rest = source.rpartition("/")
    topic, _, partition = topic.rpartition("/")
    if not (topic and partition.isdecimal() and rest.isdecimal() and len(rest + partition) < 40):
        return None
    return topic, int(partition), int(rest)


class Search:
    """Collects the events of some messages, known by id or by record.

    Args:
        wanted: ids of messages, or their records as topic/partition/offset.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self.records = 0
        self._wanted = set(wanted)
        self._records = {each: place for each in self._wanted if (place := place_of(each))}
        self._needles = [quoted(each).encode() for each in self._wanted]
        if self._records:
            self._needles.append(_GAP)
        self._xids: set[str] = set()
        """Transactions in which wanted messages were sent or acked."""
        self._found: list[Event] = []
        self._gaps: list[Lifecycle] = []

    @property
    def is_full(self) -> bool:
        """Whether it has as many events as it returns. It does not look at later ones."""
        return len(self._found) >= MOST_EVENTS

    def look(self, raw: bytes) -> None:
        """Search one record of events."""
        self.records += 1
        if self.is_full or not any(map(raw.__contains__, self._needles)):
            return
        for line in raw.split(b"\n"):
            if any(map(line.__contains__, self._needles)):
                self.take(json.loads(line))

    def take(self, event: Event) -> None:
        """Keep an event if it is about a wanted message. Events come in order."""
        kind = event["event"]
        if "id" in event and self._wanted & {event["id"], event.get("source")}:
            self._found.append(event)
            if event["id"] not in self._wanted:  # found by its record: its other events have the id
                self._wanted.add(event["id"])
                self._needles.append(quoted(event["id"]).encode())
        elif kind == "gap":
            self._gaps += (
                Lifecycle("", 0, source, source, (event,))
                for source, place in self._records.items()
                if _is_in(event, place)
            )
        elif kind == "decided":
            if event["xid"] in self._xids:
                self._found.append(event)
        elif "id" not in event and self._wanted & {
            event.get("about"), event.get("source"), event["by"],
        }:  # fmt: skip
            self._found.append(event)
            if kind == "pending":
                self._xids.add(event["xid"])
                self._needles.append(quoted(event["xid"]).encode())

    def lifecycles(self) -> list[Lifecycle]:
        """The events by queue and sequence, in the order in which the messages entered."""
        parts: dict[_Place, list[Event]] = {}
        for event in self._found:
            _add(parts, event)
        found = [
            Lifecycle(queue, sequence, id_, _source(events), tuple(events))
            for (queue, sequence, id_), events in parts.items()
        ]
        # A recreated topic has used the same offsets again: what was read is the answer.
        return sorted(found or self._gaps, key=lambda each: each.events[0]["time_ms"])


def _is_in(gap: Event, place: tuple[str, int, int]) -> bool:
    topic, partition, offset = place
    last = gap["last"]
    same = (gap["topic"], gap["partition"]) == (topic, partition)
    return same and gap["first"] <= offset and (last is None or offset <= last)


_Place = tuple[str, int, str]
"""Queue, sequence and id. The sequence is 0 until the message enters the queue."""


def _add(parts: dict[_Place, list[Event]], event: Event) -> None:
    """Add an event to the part that it continues, or begin one."""
    kind, queue = event["event"], event.get("queue", "")
    id_ = event.get("id") or event.get("about") or event.get("source") or event["by"]
    outside = (queue, 0, id_)
    if "id" in event:
        place = (queue, event.get("sequence", 0), id_)
        if place not in parts and _last(parts, outside) == "pending":
            parts[place] = parts.pop(outside)  # its transaction was committed
        parts.setdefault(place, []).append(event)
    elif kind == "pending":  # a send, or the ack of a message that a consumer has
        same = [each for each in parts if (each[0], each[2]) == (queue, id_)]
        held = [each for each in same if _last(parts, each) == "dispatched"]
        parts.setdefault(held[-1] if held else outside, []).append(event)
    elif kind in ("refused", "unreadable"):
        parts.setdefault(outside, []).append(event)
    elif kind == "decided" and not event["committed"]:
        # What was sent in it never entered a queue. What was acked in it has come back by itself.
        for (_, sequence, _), events in parts.items():
            if not sequence and events[-1].get("xid") == event["xid"]:
                events.append(event)


def _last(parts: Mapping[_Place, Sequence[Event]], place: _Place) -> str:
    """The kind of the last event of a part; empty if there is no such part."""
    return str(parts[place][-1]["event"]) if place in parts else ""


def _source(events: Iterable[Event]) -> str:
    return next((event["source"] for event in events if "source" in event), "")
