"""What becomes of an address while no configuration declares it (R70, R128)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.catalog import Catalog
from ringfaust.processor.memory import MemoryHost
from ringfaust.protocol.records import Payload

DECLARED: Mapping[str, Any] = {"a": {}}


def send(queue: str, name: str, **options: Any) -> c.Send:
    payload = Payload(None, b"", (), "in/0/0")
    return c.Send(queue, name, 0, 4, size_bytes=0, payload=payload, **options)


def entered(host: MemoryHost, command: c.Send, at_ms: int) -> list[tuple[str, str]]:
    """The queues that get the message."""
    effects = host.step(command, at_ms).all_effects
    return [(each.queue, each.message.id) for each in effects if isinstance(each, e.Added)]


def apply(revision: int, addresses: Mapping[str, Any]) -> c.Apply:
    return c.Apply(revision=revision, configuration={"addresses": addresses}, who="w", text="")


@pytest.mark.parametrize("leaves", [c.Detach("a::s", "s"), c.DeleteQueue("a::s")])
@pytest.mark.parametrize("crashes", [False, True])
def test_a_queue_that_is_deleted_meanwhile_is_no_member_any_more(
    leaves: c.Command, crashes: bool
) -> None:
    host = MemoryHost(Catalog({}, {}, DECLARED))
    host.step(c.Subscribe("a", "s", 10), 1)
    host.step(apply(1, {}), 2)
    host.step(leaves, 3)
    if crashes:
        host.crash()
    host.step(apply(2, DECLARED), 4)
    assert entered(host, send("a", "m"), 5) == []
    host.step(c.Subscribe("a", "s", 10), 6)
    assert entered(host, send("a", "n"), 7) == [("a::s", "n")]


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("name", ["a", "*"])
def test_an_address_goes_before_a_queue_that_had_its_name(name: str, crashes: bool) -> None:
    """R70, R102: also while the queue is in memory. What the queue has can be consumed."""
    host = MemoryHost(Catalog({"a": {}}, {}))
    assert entered(host, send("a", "m"), 1) == [("a", "m")]
    host.step(apply(1, {name: {"subscriptions": {"s": {}}}}), 2)
    if crashes:
        host.crash()
    assert entered(host, send("a", "n"), 3) == [("a::s", "n")]
    effects = host.step(c.Attach("a", "k", 9), 4).all_effects
    assert [each.delivery.message.id for each in effects if isinstance(each, e.Dispatched)] == ["m"]


def test_the_same_in_one_batch_with_the_change() -> None:
    host = MemoryHost(Catalog({}, {}, DECLARED))
    host.step(c.CreateQueue("a::x", {}), 1)
    host.step(c.CreateQueue("a::y", {}), 1)
    host.step(apply(1, {}), 2)
    host.step(c.DeleteQueue("a::x"), 3)
    host.step(c.CreateQueue("b", {}), 3)
    host.step(apply(2, DECLARED), 4)
    assert entered(host, send("a", "m"), 5) == [("a::y", "m")]


def test_a_send_that_is_under_way_ends_where_the_address_does() -> None:
    """A file was changed during a stop: only restoring it helped."""
    several = {"a": {"subscriptions": {f"s{number}": {} for number in range(6)}}}
    host = MemoryHost(Catalog({}, {}, several), 2)
    host.step(send("a", "m0"), 1)
    host.engine.begin(send("a", "m1"), 2)
    host._commit()
    assert host.state.unfinished is not None
    host._catalog = Catalog({}, {})
    host.crash()
    assert host.state.unfinished is None


def test_where_a_send_is_cut_changes_nothing_for_queues_that_shrink() -> None:
    """R114. Each queue gets its new settings first, however long that takes."""

    def played(most: int) -> list[tuple[str, str, str]]:
        names = {"x": {}, "y": {}}
        host = MemoryHost(Catalog({}, {}, {"a": {"subscriptions": names}}), most)
        for number in range(8):
            host.step(send("a", f"m{number}"), number + 1)
        names = {"x": {"ring_size": 2, "shrink": "eager"}, "y": {}}
        host._catalog = Catalog({}, {}, {"a": {"subscriptions": names}})
        host.crash()
        return [
            (type(each).__name__, each.message.id, getattr(each, "reason", ""))
            for each in host.step(send("a", "new"), 20).all_effects
            if isinstance(each, e.Added | e.Evicted)
        ]

    assert played(3) == played(10**9)
    assert played(3)[-1] == ("Added", "new", "")


def test_a_consumer_that_is_forgotten_stays_so_when_its_message_is_evicted() -> None:
    """R103, R102: what is in memory does not matter."""

    def rows(*, crashes: bool) -> int:
        host = MemoryHost(Catalog({"q": {}}, {}))
        host.step(send("q", "m"), 1)
        host.step(c.Attach("q", "gone", 1), 2)
        host.step(c.Detach("q", "gone"), 3)
        for number in range(1_001):
            host.step(c.Attach("q", f"c{number}", 0), 4)
            host.step(c.Detach("q", f"c{number}"), 4)
        if crashes:
            host.crash()
        host.step(c.Purge("q"), 5)
        refused = host.step(c.Ack("q", "gone", "m"), 6).all_effects
        (reason,) = [each.reason for each in refused if isinstance(each, e.Refused)]
        assert reason == "bad_command"
        return len(host.state.queues["q"].history.past.scan(None, 2_000))

    assert rows(crashes=True) == rows(crashes=False) == 1_000
