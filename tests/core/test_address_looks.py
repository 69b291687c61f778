"""Addresses, where the naive model cannot see how a queue is held: looks, caches, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core.model import AckMode
from ringfaust.core.table import Kind
from tests.model.harness import PAYLOAD, BytesStore, Partition, queue_names


def partition(cache_bytes: int = 1 << 30, **one: Any) -> Partition:
    """An address of two declared subscriptions, that keeps three messages."""
    address = {"retroactive_count": 3, "subscriptions": {"one": one, "two": {}}}
    return Partition(BytesStore(), {"a": {}}, cache_bytes, addresses={"p": address})


def send(queue: str, message: str, **more: Any) -> c.Send:
    return c.Send(queue, message, 0, payload=PAYLOAD, **more)


def test_reading_a_subscription_creates_nothing() -> None:
    it = partition()
    for look in ("p::one", "p::none"):
        assert it.engine.accepts_sends(look)
    assert it.state.queue("p::one") is not None
    assert it.commit() == []
    added = [
        one.queue for one in it.step(send("p", "m"), 0).all_effects if isinstance(one, e.Added)
    ]
    assert added == ["p::one", "p::two"]


@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
def test_a_deleted_subscription_is_recreated_when_it_is_next_needed(cache_bytes: int) -> None:
    """Not by a command to its neighbour, were that decoded anew or not (R102)."""
    it = partition(cache_bytes)
    it.step(send("p", "m"), 0)
    it.step(c.DeleteQueue("p::one"), 0)
    it.commit()
    it.step(c.Purge("p::two"), 0)
    it.commit()
    assert queue_names(it.store) == ["p::two"]
    copied = [
        one.queue for one in it.step(send("p", "n"), 0).all_effects if isinstance(one, e.Added)
    ]
    assert sorted(copied) == ["p::one", "p::one", "p::two"]


def test_a_declared_subscription_has_its_window_from_the_start() -> None:
    it = partition(window=1)
    it.step(c.ConfigureAddress("p", {}), 0)
    it.commit()
    it.start()
    effects = it.step(send("p", "m"), 0).all_effects
    assert [one.delivery.consumer for one in effects if isinstance(one, e.Dispatched)] == [
        "@window"
    ]


def test_a_durable_subscription_does_not_reuse_a_non_durable_queue() -> None:
    """R70: consumer k has a queue of its own name, and that is no subscription to keep."""
    it = partition()
    it.step(c.Subscribe("p", "k", 1, shared=True), 0)
    effects = it.step(c.Subscribe("p", "other", 1, subscription="k"), 0).all_effects
    assert [one.reason for one in effects if isinstance(one, e.Refused)] == ["bad_command"]


@pytest.mark.parametrize(
    ("message", "attached"),
    [
        (send("a", "m", expires_at_ms=5), False),  # it leaves at once
        (send("a", "m"), True),  # a consumer takes it for good
    ],
)
def test_a_message_that_does_not_stay_is_not_refused_by_a_full_queue(
    message: c.Send, attached: bool
) -> None:
    """R60: the limits are tested after the ring."""
    it = Partition(BytesStore(), {"a": {"max_messages": 1, "when_full": "reject_newest"}})
    it.step(send("a", "later", due_ms=99), 0)
    if attached:
        it.step(c.Attach("a", "k", 1, ack_mode=AckMode.NONE), 0)
    assert not [one for one in it.step(message, 9).all_effects if isinstance(one, e.Refused)]


def test_what_an_address_retains_in_flight_is_dropped_by_a_new_configuration() -> None:
    """An address that the store does not have yet stays decoded (R71, R128)."""
    it = Partition(BytesStore(), {}, addresses={"p": {"retroactive_count": 1}})
    it.step(send("p", "m1"), 1)
    it.begin_commit()
    it.step(c.Apply(1, {"addresses": {"p": {}}}), 2)
    it.finish_commit()
    it.commit()
    assert list(it.store.scan(Kind.RETAINED, "p", 0, None, 9)) == []
