"""A producer's record, read independently of the engine."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ringfaust.protocol.records import FetchedRecord
from tests.sim.queue_book import Message


class Send(NamedTuple):
    """A record that asks for a send."""

    queue: str
    source: str
    record: FetchedRecord
    said: dict[str, str]
    now_ms: int

    @property
    def id(self) -> str:
        return self.said.get("id", self.source)

    @property
    def xid(self) -> str:
        return self.said.get("xid", "")

    @property
    def owner(self) -> str:
        return self.said.get("xid-owner", "")

    @property
    def redrive_of(self) -> str:
        return "" if self.xid else self.said.get("redrive-of", "")

    def properties(self) -> dict[str, Any]:
        plain = {n: v.decode() for n, v in self.record.headers if not n.startswith("ringfaust-")}
        return {**plain, **json.loads(self.said.get("properties", "{}"))}

    def message(self, sequence: int, *, copied: bool = False, now_ms: int = 0) -> Message:
        """The message that it creates. `copied`: by an address, for a queue that joined later."""
        record, said = self.record, self.said
        kept = [
            pair for pair in record.headers
            if not pair[0].startswith("ringfaust-") or pair[0] == "ringfaust-properties"
            or pair[0] == "ringfaust-redrives" and "redrive-of" in said
        ]  # fmt: skip
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value) for name, value in kept)
        due_ms = self._time("deliver-at-ms", "delay-ms")
        return Message(
            sequence, self.id, self.source, int(said.get("priority", 4)), said.get("group", ""),
            0 if copied or due_ms <= now_ms else due_ms, self._time("expires-at-ms", "ttl-ms"),
            size, self.properties(), said.get("delivery-mode") != "non_persistent",
        )  # fmt: skip

    def _time(self, at: str, after: str) -> int:
        if at in self.said:
            return int(self.said[at])
        wait_ms = int(self.said.get(after, 0))
        return self.now_ms + wait_ms if wait_ms > 0 else 0
