"""What the topics say of orders to stopped partitions, read without the engine's code (R123)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ringfaust.protocol.records import FetchedRecord
from tests.sim.broker import Broker
from tests.sim.plan import PARTITIONS
from tests.sim.queue_book import Line, demand

WHO = "ann"
ORDER = "order/"
"""How the `reply` of an order begins."""


UNKNOWN = "it is not known whether"
"""What the answer contains if an order may have been carried out."""
ORDER_MARKS = (b'"retry_partition"', b'"skip_record"')
"""What the value of an order contains."""


class OrderBook:
    """Compares orders, answers, and what was skipped."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def answers(self, number: int) -> list[tuple[str, str]]:
        """The `reply` of each order that was answered, and why it was refused; empty: it was not.

        Args:
            number: the partition of the control topic.
        """
        found = []
        for record in self._broker.log("replies", number).records():
            key, body = (record.key or b"").decode(), json.loads(record.value or b"")
            if key.startswith(ORDER):
                found.append((key, "" if body["ok"] else body["text"]))
        return found

    def check(self) -> None:
        """Only what an order has named was skipped, and it is in the dead topic, unchanged."""
        for number in range(PARTITIONS):
            skipped = self._skipped(number)
            self._check_dead(number, list(skipped.values()))
            refused = {reply for reply, why in self.answers(number) if why and UNKNOWN not in why}
            skips = {
                reply: order["at"] for reply, order in self._orders(number).items()
                if order["type"] == "skip_record"
            }  # fmt: skip
            asked = {at for reply, at in skips.items() if reply not in refused}
            demand(skipped.keys() <= asked, "nobody asked to skip", skipped.keys() - asked)
            self._check_answers(number, skips, skipped)

    def _orders(self, number: int) -> dict[str, Any]:
        """By its `reply`, each order that was given."""
        records = [each.value or b"" for each in self._broker.log("control", number).records()]
        orders = [value for value in records if any(mark in value for mark in ORDER_MARKS)]
        return {order["reply"]: order for order in map(json.loads, orders)}

    def _skipped(self, number: int) -> dict[str, Line]:
        """By its position, the event of each record that was skipped."""
        found: dict[str, Line] = {}
        for record in self._broker.log("events", number).records():
            for line in map(json.loads, (record.value or b"").split(b"\n")):
                if line["event"] == "unreadable" and line["reason"] == "skipped":
                    demand(line["by"] not in found, "skipped twice:", line)
                    demand(line["text"].startswith(f"skipped by {WHO}: "), "by whom?", line)
                    found[line["by"]] = line
        return found

    def _check_dead(self, number: int, lines: list[Line]) -> None:
        dead = [(dict(each.headers), each) for each in self._broker.log("dead", number).records()]
        found = [
            (said["ringfaust-source"].decode(), record)
            for said, record in dead
            if said["ringfaust-reason"] == b"skipped"
        ]
        sources = [line.get("source", line["by"]) for line in lines]
        demand([source for source, _ in found] == sources, found, "must be", sources)
        for line, (_, record) in zip(lines, found, strict=True):
            topic, partition, offset = line["by"].split("/")
            logs = [of(topic, int(partition)) for of in (self._broker.log, self._broker.former)]
            given = [each for log in logs if (each := log.at(int(offset))) is not None]
            demand(any(_content(each) == _content(record) for each in given), "altered:", record)

    def _check_answers(self, number: int, skips: dict[str, str], skipped: dict[str, Line]) -> None:
        """An order is reported as carried out once, and only if it was."""
        done = Counter(reply for reply, why in self.answers(number) if not why)
        for reply, count in done.items():
            demand(count == 1, reply, "is answered", count, "times")
            at = skips.get(reply)
            demand(at is None or at in skipped or self._is_gone(at), at, "was not skipped")

    def _is_gone(self, at: str) -> bool:
        topic, partition, offset = at.split("/")
        is_new = self._broker.was_recreated(topic)
        return is_new or self._broker.log(topic, int(partition)).begin > int(offset)


def order_to(unit: str, what: str, at: str, number: int) -> dict[str, str]:
    """An order to `retry`, to `skip` the record `at` which the unit has stopped, or another one."""
    order = {"partition": unit, "by": WHO, "reply": f"{ORDER}{number}"}
    if what == "retry":
        return {"type": "retry_partition", **order}
    return {"type": "skip_record", "at": at if what == "skip" else f"{at}1", **order}


def _content(record: FetchedRecord) -> tuple[Any, ...]:
    """What a producer has put into a record, as far as it is passed on."""
    headers = [pair for pair in record.headers if not pair[0].startswith("ringfaust-")]
    return record.key, record.value, headers
