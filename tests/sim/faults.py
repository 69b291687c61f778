"""Lasting errors that the script causes, until an operator mends what causes them (R123)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from aiokafka.errors import TopicAuthorizationFailedError, TransactionalIdAuthorizationFailed

from ringfaust.protocol.records import FetchedRecord, place_of
from tests.sim.broker import Broker
from tests.sim.queue_book import demand

Position = tuple[str, int, int]
UnitName = tuple[int, str]
"""See `worker.Unit`."""


class Undecidable(Exception):
    """What a bug raises that one record shows."""


CAUSED = (Undecidable, TopicAuthorizationFailedError, TransactionalIdAuthorizationFailed)
"""All errors that the script causes."""


class Faults:
    """Which records cannot be decided now, and what the workers may not do."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._records: dict[Position, int] = {}
        """By position of a record: where the events ended when it was written."""
        self._forbidden: dict[UnitName, str] = {}
        self.units: set[UnitName] = set()
        """Those that had a fault."""

    def poison(self, topic: str, number: int, offset: int) -> None:
        """Nobody can decide this record, which is the newest."""
        self._records[topic, number, offset] = self._broker.log("events", number).next_offset()
        self.units.add((number, ""))

    def check_decided(self, records: Iterable[FetchedRecord]) -> None:
        """Raise an error if one of the records cannot be decided."""
        for record in records:
            if (record.topic, record.partition, record.offset) in self._records:
                raise Undecidable(place_of(record))

    def forbid(self, unit: UnitName, what: str) -> None:
        """`what`: `open` or `commit`."""
        self._forbidden[unit] = what
        self.units.add(unit)

    def check_allowed(self, unit: UnitName, what: str) -> None:
        """Raise an error if the unit may not do that."""
        if self._forbidden.get(unit) == what:
            is_open = what == "open"
            raise (TransactionalIdAuthorizationFailed if is_open else TopicAuthorizationFailedError)

    def mend(self, unit: UnitName) -> None:
        """Nothing is wrong with the unit any more."""
        self._forbidden.pop(unit, None)
        for position in [each for each in self._records if unit == (each[1], "")]:
            self._check_waits(position, self._records.pop(position))

    def forget(self, topic: str) -> None:
        """The topic is created again."""
        self._records = {at: end for at, end in self._records.items() if at[0] != topic}

    def _check_waits(self, position: Position, begin: int) -> None:
        """It was skipped first, or neither it nor a later record of its topic took effect."""
        topic, number, offset = position
        log = self._broker.log(topic, number)
        if log.at(offset) is None or log.begin > offset:
            return  # nobody has to decide it
        if self._broker.was_recreated(topic):
            return  # the events may still be about the former topic
        for record in self._broker.log("events", number).records(begin):
            for line in map(json.loads, (record.value or b"").split(b"\n")):
                of, _, at = line["by"].rpartition("/")
                if of == f"{topic}/{number}" and int(at) >= offset and line["event"] != "gap":
                    is_skip = int(at) == offset and line.get("reason") == "skipped"
                    demand(is_skip, position, "cannot be decided, but:", line)
                    return
