"""What a reader of the status topic makes of its rows, its own and foreign ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfaust.client import StartedAlready, StatusReader, status
from ringfaust.client.connection import ConnectOptions
from ringfaust.client.status import StatusRows
from ringfaust.client.status_rows import QueueRates, read_queue_status
from ringfaust.core.model import Counts
from ringfaust.protocol.status import QueueState, queue_key, worker_key, write_queue_status

STATE = QueueState((2, 1, 0, 9, 0, 6, 0, 0, 0, 0, 0, 0), ("pulling",), 4, 300, '{"ring_size":2}')


def row(added: int = 9, **more: Any) -> bytes:
    counts = (*STATE.counts[:3], added, *STATE.counts[4:])
    value = write_queue_status(
        STATE._replace(counts=counts), partition=0, time_ms=50, oldest_ms=40,
        rates={"evicted": 1.5}, evicted_by={"overflow": 6},
    )  # fmt: skip
    return json.dumps(json.loads(value) | more).encode()


def test_the_bytes_of_a_row_are_as_documented() -> None:
    value = write_queue_status(
        STATE, partition=3, time_ms=50, oldest_ms=40, rates={"added": 0.5},
        evicted_by={"overflow": 6},
    )  # fmt: skip
    assert value == (
        b'{"time_ms":50,"partition":3,"counts":{"ready":2,"delivering":1,"added":9,"evicted":6},'
        b'"rates":{"added":0.5},"evicted_by":{"overflow":6},"bytes":300,"oldest_ms":40,'
        b'"consumers":4,"paused":["pulling"],"settings":{"ring_size":2}}'
    )


def test_a_row_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    found = read_queue_status("q", 3, row(colour="red", settings={"ring_size": 2, "shape": [1]}))
    assert found is not None
    assert (found.queue, found.partition, found.ring_size, found.paused) == (
        "q", 3, 2, ("pulling",),
    )  # fmt: skip
    assert found.counts == Counts(ready=2, delivering=1, added=9, evicted=6)
    assert found.counts.messages == 3
    assert found.rates == QueueRates(evicted=1.5)
    assert found.settings["shape"] == [1]


@pytest.mark.parametrize(
    "value",
    [
        b"", b"nonsense", b"[]", b"7", b"null", b"{}", b"\xff\xfe", b"[" * 100_000,
        row(counts=[]), row(counts={"ready": "2"}), row(time_ms="now"), row(paused=7),
        row(settings=None), row(rates={"added": "fast"}), row(evicted_by=[1]), row(bytes=1.5),
        row(rates={"added": 10**400}),
    ],
)  # fmt: skip
def test_a_foreign_row_removes_what_was_known_and_nothing_else(value: bytes) -> None:
    rows = StatusRows()
    rows.take(0, queue_key("q"), row())
    rows.take(0, queue_key("other"), row())
    rows.take(0, queue_key("q"), value)
    rows.take(0, worker_key("w"), value)
    assert [each.queue for each in rows.queues()] == ["other"]
    assert not rows.workers


ODD = (None, True, -1, 1e999, "", "text", [], [[]], {}, {"a": None}, {"0": 1.5}, [{}], 10**30)


@given(
    st.sampled_from([b"queue/q", b"worker/w", b"queue/", b"/", b"queue/\xff", b"", None]),
    st.dictionaries(st.sampled_from([*json.loads(row()), "ready", "lag"]), st.sampled_from(ODD)),
)
def test_no_record_breaks_a_reader(key: bytes | None, odd: dict[str, Any]) -> None:
    rows = StatusRows()
    rows.take(0, key, row(**odd))
    assert len([*rows.queues()]) + len(rows.workers) <= 1


def test_the_latest_changes_come_first() -> None:
    rows = StatusRows()
    for name in "abc":
        rows.take(0, queue_key(name), row())
    seen = rows.revision
    rows.take(0, queue_key("b"), row(10))
    rows.take(0, queue_key("d"), row())
    rows.take(0, queue_key("c"), None)
    assert [each.queue for each in rows.queues_since(seen)] == ["d", "b"]
    assert rows.queue("c") is None
    assert {each.queue for each in rows.queues()} == set("abd")
    assert not [*rows.queues_since(rows.revision)]


def test_a_queue_lives_where_its_messages_are() -> None:
    rows = StatusRows()
    rows.take(0, queue_key("q"), row(0, time_ms=99))
    rows.take(1, queue_key("q"), row(5))
    found = rows.queue("q")
    assert found is not None
    assert found.partition == 1
    assert [each.partition for each in rows.queues()] == [1]
    rows.take(1, queue_key("q"), None)
    assert [each.partition for each in rows.queues()] == [0]


def test_more_queues_than_the_bound_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MOST_QUEUES", 2)
    rows = StatusRows()
    for name in "abc":
        rows.take(0, queue_key(name), row())
    assert rows.is_truncated
    assert [each.queue for each in rows.queues()] == ["a", "b"]
    rows.take(0, queue_key("a"), row(11))
    found = rows.queue("a")
    assert found is not None
    assert found.counts.added == 11


async def test_a_second_start_is_refused_and_the_first_stays(where: ConnectOptions) -> None:
    async with StatusReader(**where) as reader:
        with pytest.raises(StartedAlready):
            await reader.start()
        assert [each.queue for each in reader.queues()] != []
