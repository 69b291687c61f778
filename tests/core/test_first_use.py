"""The first use of a queue comes before what uses it, however long that takes (R90, R114)."""

from __future__ import annotations

import pytest

from ringfaust.core import commands as c
from ringfaust.core.catalog import Catalog
from ringfaust.core.model import Stage
from ringfaust.core.transitions import delivering
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload


def send(host: MemoryHost, name: str, due_ms: int = 0) -> None:
    host.step(c.Send("q", name, 0, due_ms=due_ms, payload=Payload(None, b"", (), "in/0/0")), 0)


def acked_in_xid(host: MemoryHost) -> None:
    send(host, "A")
    host.step(c.Attach("q", "k", 1), 0)
    host.step(c.Begin("x", "owner"), 0)
    host.step(c.Ack("q", "k", "A", xid="x", owner="owner"), 0)
    host.step(c.Prepare("x"), 0)


def scheduled(host: MemoryHost) -> None:
    send(host, "A", due_ms=10)
    send(host, "I", due_ms=10)


@pytest.mark.parametrize(
    ("prepare", "command"),
    [
        (acked_in_xid, c.Commit("x")),
        (acked_in_xid, c.RollbackXid("x")),
        (scheduled, c.Sweep()),
    ],
)
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_where_a_command_is_cut_changes_nothing_for_a_queue_that_shrinks(
    prepare: object, command: c.Command, most: int
) -> None:
    def played(most: int) -> list[tuple[str, str, str]]:
        host = MemoryHost(Catalog({"q": {"consumer_timeout": 0}}, {}), most)
        prepare(host)  # type: ignore[operator]
        for name in "BCDEFGH":
            send(host, name)
        host._catalog = Catalog({"q": {"ring_size": 2, "shrink": "eager"}}, {})
        host.crash()
        return [
            (
                type(each).__name__,
                each.message.id if hasattr(each, "message") else "",
                getattr(each, "reason", ""),
            )
            for each in host.step(command, 20).all_effects
        ]

    whole = played(10**9)
    assert played(most) == whole
    assert ("Evicted", "B", "shrink") in whole


def test_a_dispatch_that_has_no_room_for_its_first_message_continues() -> None:
    """The row of its queue may have taken the room (R121)."""
    host = MemoryHost(Catalog({"q": {"selector": " OR ".join(["a = 1"] * 20)}}, {}))
    send(host, "A")
    queue, work = host.state.queues["q"], host.engine._work
    host.step(c.Attach("q", "k", 0), 1)
    queue.consumers["k"].credit = 1
    work.begin(2)
    work.left_bytes = queue.row_cost
    delivering.dispatch_stage(work, queue, Stage(delivering.DISPATCH, "q"))
    assert not work.effects
    work.stages, (stage,) = [], work.stages
    work.left_bytes = 1_000
    delivering.dispatch_stage(work, queue, stage)
    assert [each.delivery.message.id for each in work.effects] == ["A"]
