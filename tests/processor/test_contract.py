"""The order in which a host may call a processor. A call out of order fails an assertion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ringfaust.core.catalog import Catalog
from ringfaust.core.state import State
from ringfaust.processor.processor import Processor, ProcessorConfig
from ringfaust.processor.row_store import ByteStore, MemoryKeyValue
from ringfaust.protocol.records import FetchedRecord, OutRecord, Role
from ringfaust.protocol.routes import Route
from tests.records import new_record

NOW_MS = 1_000
CACHE_BYTES = 1 << 20


class Host:
    """A host that commits between the parts of a large command."""

    def __init__(self, step_transitions: int = 100, **settings: Any) -> None:
        config = ProcessorConfig(
            control_topic="control", repartition_topic="hop", routes=[Route("in", "q")],
            max_record_bytes=1_000, log_is_clock=False, step_transitions=step_transitions,
        )  # fmt: skip
        self.store = MemoryKeyValue()
        state = State(ByteStore(self.store), Catalog({"q": settings}, {}))
        self.processor: Processor[list[OutRecord]] = Processor(config, state, {}, list)
        self.processor.is_cut = True
        self._offsets = {"in": 0, "control": 0}

    def record(self, topic: str, value: bytes, *headers: tuple[str, bytes]) -> FetchedRecord:
        offset = self._offsets[topic]
        self._offsets[topic] = offset + 1
        return new_record(topic, offset, value, headers)

    def send(self, *headers: tuple[str, bytes]) -> None:
        self.processor.take([self.record("in", b"body", *headers)], NOW_MS)

    def take_out(self) -> None:
        """Output, as far as the store: the batch is in flight."""
        self.processor.outputs()
        self.store.apply(self.processor.writes().store)

    def commit(self) -> None:
        self.take_out()
        self.processor.committed(CACHE_BYTES)

    def purge_in_part(self) -> None:
        """A command that continues in the next transaction."""
        for _ in range(3):
            self.send()
            self.commit()
        self.processor.take([self.record("control", b'{"type":"purge","queue":"q"}')], NOW_MS)


def writes_twice(host: Host) -> None:
    host.take_out()
    host.send()
    host.take_out()


def writes_before_outputs(host: Host) -> None:
    host.send()
    host.processor.writes()


def settles_without_writes(host: Host) -> None:
    host.send()
    host.processor.outputs()
    host.processor.committed(CACHE_BYTES)


def settles_twice(host: Host) -> None:
    host.commit()
    host.processor.committed(CACHE_BYTES)


def takes_more_than_fits(host: Host) -> None:
    host.purge_in_part()
    host.send()


def ticks_within_a_command(host: Host) -> None:
    host.purge_in_part()
    host.commit()
    host.processor.tick(NOW_MS)


def goes_on_with_nothing(host: Host) -> None:
    host.processor.go_on()


@pytest.mark.parametrize(
    "misuse",
    [
        writes_twice, writes_before_outputs, settles_without_writes, settles_twice,
        takes_more_than_fits, ticks_within_a_command, goes_on_with_nothing,
    ],
)  # fmt: skip
def test_a_call_out_of_order_fails(misuse: Callable[[Host], None]) -> None:
    with pytest.raises(AssertionError):
        misuse(Host(step_transitions=1))


def test_the_next_batch_is_decided_while_one_is_in_flight() -> None:
    host = Host()
    host.send()
    host.take_out()
    host.send()
    assert host.processor.decided_outputs() == [(Role.EVENTS, None)]
    host.processor.committed(CACHE_BYTES)
    host.commit()
    assert dict(host.processor.positions) == {"in": 2}


def test_a_large_command_continues_in_the_next_batches_and_then_others_come() -> None:
    host = Host(step_transitions=1)
    host.purge_in_part()
    batches = 1
    while host.processor.is_unfinished:
        assert host.processor.is_full
        host.commit()
        host.processor.go_on()
        batches += 1
    assert batches >= 3
    host.commit()
    host.send()
    host.commit()
    assert list(host.processor.queues()) == [("q", 1)]


def test_a_host_learns_when_the_next_tick_is_due() -> None:
    host = Host()
    assert host.processor.next_wake_ms() is None
    host.send(("ringfaust-ttl-ms", b"500"))
    due_ms = host.processor.next_wake_ms()
    assert due_ms is not None
    assert due_ms >= NOW_MS + 500
    host.commit()
    host.processor.tick(due_ms)
    assert (host.processor.now_ms, host.processor.next_wake_ms()) == (due_ms, None)
    assert [role for role, _ in host.processor.decided_outputs()] == [Role.DEAD, Role.EVENTS]


def test_a_question_ends_a_call_and_fills_the_batch_by_its_answer() -> None:
    """R122: the host's event loop runs between two of them, however many come at once."""
    host = Host()
    room = host.processor._room
    question = b'{"type":"list_queues","reply":"me"}'
    records = iter([host.record("control", question), host.record("control", question)])
    host.processor.take(records, NOW_MS)
    assert len([*records]) == 1
    assert not host.processor.is_full
    ((_, reply, _),) = host.processor.outputs()[Role.REPLIES, None]
    assert host.processor._room == room
    host.processor.take(iter([host.record("control", question)]), NOW_MS)
    assert host.processor._room == room - len(reply or b"")


def test_polls_change_nothing() -> None:
    host = Host(ring_size=1)
    host.processor.observe(evictions=True, counts=True)
    host.send()
    host.send()
    for _ in range(2):
        activity = host.processor.activity()
        assert list(activity.changed) == ["q"]
        assert [gone.queue for gone in activity.evictions] == ["q"]
        assert activity.evicted is not None
        assert activity.evicted.messages == {"overflow": {"q": 1}}
        assert (Role.EVICTED, None) in host.processor.decided_outputs()
        assert host.processor.accepts_sends("q")
        assert host.processor.why_paused("q") == "queue 'q' is full"
        assert host.processor.revision == 0
        assert not host.processor.is_full
    outputs = host.processor.outputs()
    assert len(outputs[Role.EVICTED, None]) == 1
    assert host.processor.activity().evictions == []
