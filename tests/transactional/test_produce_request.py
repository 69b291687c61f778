"""Produce requests that are written with one copy, beside aiokafka's."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol.produce import ProduceRequest, ProduceRequest_v7

from ringfaust.transactional.produce_request import OneCopy

VERSIONS = {0: (3, 12)}
BATCHES = [
    [],
    [("events", [(0, b"batch")])],
    [("evicted", [(0, bytearray(b"one")), (7, b"")]), ("straße", [(1, bytearray(range(256)))])],
]


@pytest.mark.parametrize("topics", BATCHES)
@pytest.mark.parametrize("transactional_id", [None, "ringfaust-0"])
def test_the_bytes_are_those_of_aiokafka(topics: Any, transactional_id: str | None) -> None:
    request = ProduceRequest(transactional_id, -1, 40_000, topics)
    ours = OneCopy(request).prepare(VERSIONS)
    assert ours.encode() == request.build(ProduceRequest_v7).encode()
    assert (ours.API_KEY, ours.API_VERSION) == (0, 7)


def test_the_header_names_the_version() -> None:
    ours = OneCopy(ProduceRequest("t", -1, 1, [])).prepare(VERSIONS)
    theirs = ProduceRequest("t", -1, 1, []).build(ProduceRequest_v7)
    headers = [each.build_request_header(5, "me").encode() for each in (ours, theirs)]
    assert headers[0] == headers[1]
