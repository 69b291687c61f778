"""Dispatch does not look again at what no selector wants (R14, R15), and misses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ringfaust.core import commands as c
from ringfaust.core import effects as e
from ringfaust.core import limits
from ringfaust.core.engine import Step
from ringfaust.core.table import Key
from tests.core.selecting import Payload
from tests.model.harness import DictStore, Partition

RED, BLUE = "color = 'red'", "color = 'blue'"
COLORS = ("blue", "green", "white", "red")
UNWANTED = 400


class Looked(Payload):
    """Counts how often selectors look at any of its kind."""

    source = "in/0/0"
    times = 0

    def properties(self) -> Mapping[str, Any]:
        Looked.times += 1
        return super().properties()


class CountingStore(DictStore):
    """Counts the rows that are decoded."""

    decoded = 0

    def scan(self, kind: int, queue: str, part: Any, after: Key | None, most: int) -> Iterator[Any]:  # type: ignore[override]
        for row in super().scan(kind, queue, part, after, most):
            self.decoded += 1
            yield row


def partition(store: DictStore | None = None, cache_bytes: int = 1 << 30, **more: Any) -> Partition:
    return Partition(store or DictStore(), {"q": {"max_attempts": -1}}, cache_bytes, **more)


def send(it: Partition, number: int, color: str, **fields: Any) -> Step:
    payload = Looked(color=color)
    return it.step(c.Send("q", f"m{number}", 1, payload=payload, **fields), 1)


def fill(it: Partition, count: int) -> None:
    """The last of each four is red."""
    for number in range(count):
        send(it, number, COLORS[number % len(COLORS)])


def given(step: Step) -> list[tuple[str, str]]:
    """(consumer, message) of each delivery."""
    found = [each.delivery for each in step.effects if isinstance(each, e.Dispatched)]
    return [(delivery.consumer, delivery.message.id) for delivery in found]


def ack_each(it: Partition, consumer: str, first: int) -> int:
    """Ack one message after the other, for which the next is delivered; returns the looks."""
    Looked.times = 0
    for number in range(first, UNWANTED - 4, 4):
        step = it.step(c.Ack("q", consumer, f"m{number}"), 1)
        assert given(step) == [(consumer, f"m{number + 4}")]
    return Looked.times


def test_a_skipped_message_is_not_looked_at_again() -> None:
    """Each ack looked at all of them: 100 acks of 400 messages took 20,000 looks."""
    it = partition()
    it.step(c.Attach("q", "k", 1, selector=RED), 1)
    fill(it, UNWANTED)
    assert ack_each(it, "k", 3) <= UNWANTED


@pytest.mark.parametrize("compat", ["default", "artemis"])
def test_a_message_that_may_expire_does_not_make_dispatch_look_again(compat: str) -> None:
    """R50, C1: dispatch comes to the expired, and none has expired yet."""
    it = Partition(DictStore(), {"q": {"compat": compat}})
    it.step(c.Attach("q", "k", 1, selector=RED), 1)
    fill(it, UNWANTED)
    send(it, UNWANTED, "white", expires_at_ms=10_000)
    assert ack_each(it, "k", 3) <= 2 * UNWANTED


def test_a_consumer_without_credit_does_not_hold_up_the_others() -> None:
    it = partition()
    fill(it, UNWANTED)
    it.step(c.Attach("q", "red", 1, selector=RED), 1)
    it.step(c.Attach("q", "blue", 1, selector=BLUE), 1)
    assert ack_each(it, "blue", 0) <= UNWANTED


def test_a_returned_message_does_not_make_dispatch_look_again_at_what_follows_it() -> None:
    it = partition()
    it.step(c.Attach("q", "k", 1, selector=RED), 1)
    fill(it, UNWANTED)
    it.step(c.Credit("q", "k", UNWANTED // 4 - 2), 1)
    Looked.times = 0
    for _ in range(limits.LATE + 10):
        assert given(it.step(c.Release("q", "k", "m3"), 1)) == [("k", "m3")]
    assert Looked.times <= 2 * (limits.LATE + 10)


def test_more_returned_messages_than_are_remembered_are_all_delivered_again() -> None:
    it = partition()
    fill(it, UNWANTED)
    it.step(c.Attach("q", "k", UNWANTED, selector=RED), 1)
    again = [("k", f"m{number}") for number in range(3, UNWANTED, 4)]
    assert len(again) > limits.LATE
    assert given(it.step(c.Recover("q", "k"), 1)) == again


def test_what_waited_for_the_owner_of_its_group_is_delivered_once_the_owner_has_left() -> None:
    """It matches both selectors: the other consumer has looked at it, and has not passed it."""
    it = partition()
    it.step(c.Attach("q", "owner", 1, selector=RED), 1)
    send(it, 0, "red", group="g")
    send(it, 1, "red", group="g")
    send(it, 2, "blue")
    send(it, 3, "red")
    it.step(c.Pause("q", "dispatch"), 1)
    it.step(c.Attach("q", "other", 1, selector="color <> 'white'"), 1)
    assert given(it.step(c.Resume("q", "dispatch"), 1)) == [("other", "m2")]
    assert given(it.step(c.Ack("q", "other", "m2"), 1)) == [("other", "m3")]
    it.step(c.Ack("q", "other", "m3"), 1)
    assert given(it.step(c.Detach("q", "owner"), 1)) == [("other", "m0")]
    assert given(it.step(c.Ack("q", "other", "m0"), 1)) == [("other", "m1")]


def test_such_a_message_is_not_passed_either_when_another_consumer_runs_out_of_credit() -> None:
    it = partition()
    it.step(c.Attach("q", "owner", 1, selector=RED), 1)
    send(it, 0, "red", group="g")
    send(it, 1, "red", group="g")
    send(it, 2, "blue")
    send(it, 3, "white")
    it.step(c.Pause("q", "dispatch"), 1)
    it.step(c.Attach("q", "other", 1, selector=RED), 1)
    it.step(c.Attach("q", "blue", 1, selector=BLUE), 1)
    assert given(it.step(c.Resume("q", "dispatch"), 1)) == [("blue", "m2")]
    assert given(it.step(c.Detach("q", "owner"), 1)) == [("other", "m0")]
    assert given(it.step(c.Ack("q", "other", "m0"), 1)) == [("other", "m1")]


def test_what_has_returned_and_is_not_delivered_at_once_is_delivered_next() -> None:
    it = partition()
    fill(it, 20)
    it.step(c.Attach("q", "k", 2, selector=RED), 1)
    it.step(c.Attach("q", "other", 1, selector=RED), 1)
    it.step(c.Pause("q", "dispatch"), 1)
    it.step(c.Detach("q", "k"), 1)
    it.step(c.Resume("q", "dispatch"), 1)
    assert given(it.step(c.Ack("q", "other", "m11"), 1)) == [("other", "m3")]
    assert given(it.step(c.Ack("q", "other", "m3"), 1)) == [("other", "m7")]
    assert given(it.step(c.Ack("q", "other", "m7"), 1)) == [("other", "m15")]


def test_what_returns_before_the_place_of_one_selector_and_behind_that_of_another() -> None:
    it = partition()
    fill(it, UNWANTED)
    it.step(c.Attach("q", "red", 20, selector=RED), 1)
    it.step(c.Attach("q", "blue", 1, selector=BLUE), 1)
    assert given(it.step(c.Release("q", "red", "m43"), 1)) == [("red", "m43")]


def test_a_message_of_a_group_that_its_owner_does_not_want_is_skipped() -> None:
    it = partition()
    it.step(c.Attach("q", "k", 1, selector=RED), 1)
    send(it, 0, "red", group="g")
    for number in range(1, 100):
        send(it, number, "blue", group="g")
    for number in range(100, 110):
        send(it, number, "red")
    it.step(c.Ack("q", "k", "m0"), 1)
    Looked.times = 0
    for number in range(100, 109):
        it.step(c.Ack("q", "k", f"m{number}"), 1)
    assert Looked.times <= 110


def test_a_selector_that_comes_back_looks_at_everything() -> None:
    it = partition()
    it.step(c.Attach("q", "red", 9, selector=RED), 1)
    send(it, 0, "blue")
    it.step(c.Attach("q", "blue", 0, selector=BLUE), 1)
    it.step(c.Detach("q", "red"), 1)
    send(it, 1, "red")
    assert given(it.step(c.Attach("q", "red", 9, selector=RED), 1)) == [("red", "m1")]
    assert given(it.step(c.Credit("q", "blue", 1), 1)) == [("blue", "m0")]


def test_a_consumer_that_takes_all_skips_nothing() -> None:
    it = partition()
    it.step(c.Attach("q", "red", 9, selector=RED), 1)
    fill(it, 8)
    messages = [given(it.step(c.Attach("q", "all", 9), 1))]
    assert messages == [[("all", f"m{number}") for number in (0, 1, 2, 4, 5, 6)]]


@pytest.mark.parametrize("compat", ["default", "artemis"])
def test_dispatch_comes_to_what_has_expired(compat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R50, C1: a message that no selector wants leaves with it, too, as far as others get."""
    monkeypatch.setattr(limits, "SWEEP_AT_ONCE", 1)
    it = Partition(DictStore(), {"q": {"compat": compat}})
    it.step(c.Attach("q", "k", 1, selector=RED), 1)
    send(it, 0, "red")
    send(it, 1, "white")
    for number in (2, 3, 4):
        send(it, number, "blue", expires_at_ms=10)
    send(it, 5, "red")
    send(it, 6, "red")
    send(it, 7, "red")
    it.step(c.Ack("q", "k", "m0"), 2)
    step = it.step(c.Ack("q", "k", "m5"), 11)
    gone = [each.message.id for each in step.effects if isinstance(each, e.Expired)]
    assert gone == ["m2", "m3", "m4"]


def test_what_follows_the_skipped_messages_is_not_decoded_for_each_delivery() -> None:
    """The window is full of messages that nobody wants."""
    store = CountingStore()
    it = partition(store, cache_bytes=60_000, refill=20)
    fill(it, UNWANTED)
    it.commit()
    it.step(c.Attach("q", "k", 1, selector="color = 'red' AND JMSPriority < 9"), 1)
    for number in range(3, UNWANTED - 4, 4):
        if number == 203:
            store.decoded = 0
        it.step(c.Ack("q", "k", f"m{number}"), 1)
        it.commit()
    assert store.decoded <= UNWANTED // 2 + 40
