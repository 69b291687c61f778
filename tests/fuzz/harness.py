"""A partition with something in every table, and a way to see whether a record has changed it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import Headers, OutRecord, Role
from ringfaust.protocol.routes import Route
from ringfaust.protocol.stored_rows import POSITIONS_KEY
from tests.records import new_record

CONTROL, IN, KEYED, HOP = "control", "in", "keyed", "hop"
MOST_BYTES = 100_000
NOW_MS = 1_700_000_000_000
SETTINGS = {"#": {"consumer_timeout": 0}}
QUEUES: dict[str, dict[str, object]] = {
    "orders": {"ring_size": 3},
    "strict": {"max_messages": 1, "when_full": "reject_newest"},
}
ADDRESSES = {"prices": {"retroactive_count": 2, "subscriptions": {"ann": {}}}}
BEGINNING: list[tuple[str, dict[str, Any]]] = [
    ("attach", {"consumer": "holder", "credit": 3, "session": "s"}),
    ("begin", {"xid": "open", "owner": "o"}),
    ("begin", {"xid": "prepared"}),
    ("ack", {"consumer": "holder", "message": "A", "xid": "prepared"}),
    ("prepare", {"xid": "prepared"}),
    ("ack", {"consumer": "holder", "message": "B", "xid": "open", "owner": "o"}),
    ("release", {"consumer": "holder", "message": "C", "delay_ms": 60_000}),
    ("attach", {"consumer": "picky", "credit": 1, "selector": "color = 'red'"}),
]


class Said(NamedTuple):
    """What came of a record."""

    events: list[dict[str, Any]]
    dead: list[OutRecord]
    replies: list[dict[str, Any]]
    others: int
    """Records of the other topics."""
    has_changed: bool
    """Is the durable state another?"""

    def texts(self) -> list[str]:
        """The texts for people."""
        return [line["text"] for line in self.events if "text" in line]

    def reasons(self) -> list[str]:
        """Why it was refused."""
        return [line["reason"] for line in self.events if "reason" in line]


class Partition:
    """One partition on the processor that each record takes, over a store in memory."""

    def __init__(self) -> None:
        shared = ProcessorConfig(
            control_topic=CONTROL, repartition_topic=HOP,
            routes=[Route(IN, "{header:to}"), Route(KEYED, "{key}")],
            max_record_bytes=MOST_BYTES, log_is_clock=False,
        )  # fmt: skip
        self._store = MemoryKeyValue()
        state = State(ByteStore(self._store), Catalog(QUEUES, SETTINGS, ADDRESSES))
        self.processor: Processor[list[OutRecord]] = Processor(shared, state, {}, list)
        self._offset = 0
        for message in "ABCDEF":
            self.produce([("to", b"orders"), ("ringfaust-id", message.encode())])
            if message == "C":
                for kind, fields in BEGINNING:
                    self.say({"type": kind, "queue": "orders", **fields})
        in_open = [("ringfaust-xid", b"open"), ("ringfaust-xid-owner", b"o")]
        said = self.produce([("to", b"orders"), ("ringfaust-id", b"x"), *in_open])
        assert not said.reasons()
        self.produce([("to", b"strict"), ("ringfaust-id", b"S"), ("ringfaust-delay-ms", b"9000")])
        self.produce([("to", b"prices"), ("ringfaust-id", b"P"), ("ringfaust-ttl-ms", b"9000")])

    def say(self, command: dict[str, Any]) -> Said:
        """One control command; those without a queue do not need the field."""
        if command["type"] in ("begin", "prepare"):
            command.pop("queue", None)
        return self.control(json.dumps(command).encode())

    def control(self, value: bytes | None, headers: Headers = ()) -> Said:
        """One record of the control topic."""
        return self.take(CONTROL, value, headers)

    def produce(
        self, headers: Sequence[tuple[str, Any]], value: bytes | None = b"body", topic: str = IN,
        key: bytes | None = None,
    ) -> Said:  # fmt: skip
        """One record of a producer."""
        return self.take(topic, value, headers, key)

    def take(
        self, topic: str, value: bytes | None, headers: Headers, key: bytes | None = None
    ) -> Said:
        """One record, committed by itself."""
        before = self._durable()
        record = new_record(topic, self._offset, value, tuple(headers), key)
        self._offset += 1
        left = self.processor.take([record], NOW_MS)
        assert left == [], "no queue of this partition blocks"
        out = {role: records for (role, _), records in self.processor.outputs().items()}
        self._store.apply(self.processor.writes().store)
        self.processor.committed(1 << 20)
        lines = [
            line for _, value, _ in out.pop(Role.EVENTS, []) for line in (value or b"").splitlines()
        ]
        replies = [json.loads(value or b"") for _, value, _ in out.pop(Role.REPLIES, [])]
        dead = out.pop(Role.DEAD, [])
        others = sum(map(len, out.values()))
        changed = before != self._durable()
        return Said([json.loads(line) for line in lines], dead, replies, others, changed)

    def _durable(self) -> list[tuple[bytes, bytes]]:
        """All rows; how far the topics are read is no state of a queue."""
        return [row for row in self._store.items_from(b"") if row[0] != POSITIONS_KEY]
