"""Records as a test writes them."""

from __future__ import annotations

from ringfaust.protocol.records import FetchedRecord, Headers


def new_record(
    topic: str, offset: int, value: bytes | None, headers: Headers = (), key: bytes | None = None
) -> FetchedRecord:
    """A record of partition 0, without a time."""
    return FetchedRecord(topic, 0, offset, key=key, value=value, headers=headers)
