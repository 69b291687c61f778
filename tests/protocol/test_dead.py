"""What dead records say, whatever headers their producers wrote."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ringfaust.cli.dead import DeadDetails
from ringfaust.errors import ProtocolError
from ringfaust.protocol.dead import DeadMessage
from ringfaust.protocol.outputs import undecodable_record
from ringfaust.protocol.records import FetchedRecord

Header = tuple[str, bytes | None]


@pytest.mark.parametrize(
    "headers",
    [
        [("ringfaust-redrives", b"many")], [("ringfaust-redrives", None)],
        [("ringfaust-handovers", b"x")], [("ringfaust-enqueued-ms", b"")],
        [("ringfaust-enqueued-ms", None)], [("ringfaust-consumer", None)],
        [("ringfaust-id", b"\xff")], [("ringfaust-id", None)], [("ringfaust-cause", b"\xff")],
        [("ringfaust-consumer", b"\xff")], [("ringfaust-queue", b"q")],
        [("ringfaust-sequence", b"17")], [("ringfaust-text", b"\xff"), ("ringfaust-reason", b"")],
    ],
)  # fmt: skip
def test_an_undecodable_record_is_read_whatever_its_producer_wrote(
    headers: Sequence[Header],
) -> None:
    fetched = FetchedRecord("in", 0, 7, 1, value=b"body", headers=headers)  # type: ignore[arg-type]
    key, value, written = undecodable_record(fetched, "in/0/7", ProtocolError("why"), 9_000)
    record = FetchedRecord("dead", 1, 2, 9_000, key=key, value=value, headers=written)
    (dead,) = DeadMessage.read_all([record])
    found = DeadDetails.of(dead)
    assert (found.id, found.queue, found.sequence, found.reason) == ("in/0/7", "", 0, "undecodable")
    assert (found.text, found.source, found.enqueued_ms) == ("why", "in/0/7", 9_000)
    assert (found.consumer, found.cause, found.handovers, found.redrives) == ("", "", 0, 0)
